"""ldmatrix: 8x8 matrices of 16-bit elements from shared memory into mma operands

Takes
    `ldmatrix(a[slot, m0:+m, k0:+k], layout="mma_a")`: m x k, multiples of 16; `layout="mma_b"`: n x k with n
    a multiple of 8 and k of 16. Rows are contiguous along k.
Touches
    Each warp reads the whole window through the generic proxy, eight rows of 16 bytes at once.
Completes when
    Program order.
Source
    PTX ISA, "ldmatrix", "Matrix Fragments for mma.m16n8k16 with floating point type".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.codegen.pieces import loop
from cake.ir.layouts import OperandA, OperandB
from cake.ir.layouts.legality import matrix_rows
from cake.ir.types import FragmentType, Type
from cake.kinds.primitive import (
    Bad,
    Good,
    Lowering,
    Memory,
    Op,
    Parameters,
    Primitive,
    Registers,
    Site,
    Use,
    Window,
    Writer,
    parameter,
)
from cake.machine.effects import Aligned, Banked, Effect, Read
from cake_plugins.primitives._banks import matrix_traffic

LAYOUTS = {"mma_a": OperandA(), "mma_b": OperandB()}


class Ldmatrix(Primitive):
    """Operands of mma.sync."""

    names = ("ldmatrix",)
    parameters = (parameter("window", "shared"), parameter("layout", "text"))
    uses = ("shared.latency", "shared.bytes")

    def signature(self, site: Site) -> Type | None:
        window = site.region("window")
        layout = LAYOUTS.get(site.text("layout"))
        if layout is None:
            raise site.refuse("layout", f"layout is one of {', '.join(LAYOUTS)}")
        illegal = matrix_rows(window)
        if illegal is not None:
            raise site.refuse("window", illegal.reason, help=illegal.help)
        if len(window.shape) != 2:
            raise site.refuse("window", "the window is rows x k", help="index the axes before them")
        return FragmentType(window.dtype, window.shape, layout)

    def effects(self, op: Op) -> Sequence[Effect]:
        region = op.region("window")
        buffer = region.buffer
        banks = Banked(buffer, matrix_traffic(region))
        return (Aligned(buffer, region.start, 16), Read(buffer, region.box), banks)

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        return memory.read(op.region("window")).reshape(op.result.shape).copy()

    def time(self, op: Op, parameters: Parameters) -> Use:
        region, shape = op.region("window"), op.result.shape
        matrices = shape[0] // 8 * (shape[1] // 8)
        cycles = matrix_traffic(region).wavefronts * 128 / parameters("shared.bytes")
        return Use(matrices / 4, {"lsu": matrices / 4, "shared": cycles}, parameters("shared.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        assert op.result is not None
        window: Window = op.args["window"]
        if isinstance(op.result.type.layout, OperandA):
            _lower_a(out, window, op.result)
        else:
            _lower_b(out, window, op.result)

    cases = (
        Good(
            "both operands of a product",
            """
@kernel(arch="sm_80")
def product(a: Global[bf16, M, K], b: Global[bf16, N, K], c: GlobalOut[f32, M, N]):
    require(K % 8 == 0, N % 2 == 0)
    grid(1)
    s = Shared[bf16, 16, 32](swizzle=64)
    t = Shared[bf16, 24, 32](swizzle=64)
    with role("all", warps=1):
        cp_async(s[:, :], a[0:+16, 0:+32])
        cp_async(t[:, :], b[0:+24, 0:+32])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f32, 16, 24, layout="mma")
        acc = mma(ldmatrix(s[:, :], layout="mma_a"), ldmatrix(t[:, :], layout="mma_b"), acc)
        store(c[0:+16, 0:+24], acc, vector=2)
""",
            dims={"M": 16, "N": 24, "K": 32},
            expect=lambda i: {"c": i["a"].astype(np.float64) @ i["b"].astype(np.float64).T},
            rtol=1e-6,
        ),
        Good(
            "a part of a buffer",
            """
@kernel(arch="sm_80")
def square(a: Global[bf16, M, K], c: GlobalOut[f32, N, N]):
    require(K % 8 == 0)
    grid(1)
    s = Shared[bf16, 2, 32, 64](swizzle=128)
    with role("all", warps=1):
        cp_async(s[1], a[0:+32, 0:+64])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        fa = ldmatrix(s[1, 16:+16, 16:+16], layout="mma_a")
        fb = ldmatrix(s[1, 16:+16, 16:+16], layout="mma_b")
        acc = zeros(f32, 16, 16, layout="mma")
        acc = mma(fa, fb, acc)
        store(c[0:+16, 0:+16], acc, vector=2)
""",
            dims={"M": 32, "K": 64, "N": 16},
            expect=lambda i: {
                "c": i["a"][16:, 16:32].astype(np.float64) @ i["a"][16:, 16:32].astype(np.float64).T
            },
            rtol=1e-6,
        ),
        Good(
            "the least product",
            """
@kernel(arch="sm_80")
def product(a: Global[f16, M, K], b: Global[f16, N, K], c: GlobalOut[f32, M, N]):
    require(K % 8 == 0, N % 2 == 0)
    grid(1)
    s = Shared[f16, 16, 16](swizzle=32)
    t = Shared[f16, 8, 16](swizzle=32)
    with role("all", warps=2):
        cp_async(s[:, :], a[0:+16, 0:+16])
        cp_async(t[:, :], b[0:+8, 0:+16])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f32, 16, 8, layout="mma")
        acc = mma(ldmatrix(s[:, :], layout="mma_a"), ldmatrix(t[:, :], layout="mma_b"), acc)
        if warp == 0:
            store(c[0:+16, 0:+8], acc, vector=2)
""",
            dims={"M": 16, "N": 8, "K": 16},
            expect=lambda i: {"c": i["a"].astype(np.float64) @ i["b"].astype(np.float64).T},
            rtol=1e-6,
        ),
        Bad(
            "rows that no fragment has",
            """
@kernel(arch="sm_80")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[bf16, 16, 64](swizzle=128)
    with role("all", warps=1):
        f = ldmatrix(s[0:+8, 0:+16], layout="mma_a")  #! type/layout
""",
            dims={"N": 1},
        ),
    )


def _helper(out: Writer, count: int) -> str:
    outputs = ", ".join(f'"=r"(r[{i}])' for i in range(count))
    slots = ", ".join(f"%{i}" for i in range(count))
    return out.helper(
        f"cake_ldmatrix_x{count}",
        f"__device__ __forceinline__ void cake_ldmatrix_x{count}(unsigned* r, unsigned address) {{\n"
        f'    asm volatile("ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {{{slots}}}, [%{count}];"\n'
        f'        : {outputs} : "r"(address) : "memory");\n}}',
    )


def _lower_a(out: Writer, window: Window, result: Registers) -> None:
    m, k = result.type.shape
    lead = ["0"] * (len(window.size) - 2)
    lane = out.lane
    with loop(out, "i_", m // 16), loop(out, "j_", k // 16):
        index = [*lead, f"i_ * 16 + {lane} % 16", f"j_ * 16 + {lane} / 16 * 8"]
        address = out.shared_address(window, index)
        out.line(f"{_helper(out, 4)}(&{result.name}[(i_ * {k // 16} + j_) * 4], {address});")


def _lower_b(out: Writer, window: Window, result: Registers) -> None:
    """Four matrices an instruction: two of n by two of k, or four of k; two where neither fits."""
    n, k = result.type.shape
    lead = ["0"] * (len(window.size) - 2)
    lane = out.lane
    if k == 16 and n % 16 == 0:
        with loop(out, "i_", n // 16):
            index = [*lead, f"i_ * 16 + {lane} / 16 * 8 + {lane} % 8", f"{lane} / 8 % 2 * 8"]
            out.line(f"{_helper(out, 4)}(&{result.name}[i_ * 4], {out.shared_address(window, index)});")
        return
    count = 4 if k % 32 == 0 else 2
    steps = k // (8 * count)
    with loop(out, "i_", n // 8), loop(out, "j_", steps):
        index = [*lead, f"i_ * 8 + {lane} % 8", f"j_ * {8 * count} + {lane} / 8 % {count} * 8"]
        address = out.shared_address(window, index)
        out.line(f"{_helper(out, count)}(&{result.name}[(i_ * {steps} + j_) * {count}], {address});")
