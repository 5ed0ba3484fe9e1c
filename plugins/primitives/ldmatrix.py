"""ldmatrix: 8x8 matrices of 16-bit elements from shared memory into mma operands

Takes
    `ldmatrix(a[slot, m0:+m, k0:+k], layout="mma_a")`: m x k, m a multiple of 16; `layout="mma_b"`: n x k with
    n a multiple of 8. k is a multiple of 8 of 16-bit elements, of 16 of 8-bit ones, of 4 of f32 (as tf32).
    Rows are contiguous along k; with `major="MN"` the window is k x m or k x n, rows contiguous along m or n,
    and 16-bit elements are transposed on the way.
Touches
    Each warp reads the whole window through the generic proxy, eight rows of 16 bytes at once.
Completes when
    Program order.
Source
    PTX ISA, "ldmatrix", "Matrix Fragments for mma.m16n8k16 with floating point type", "... mma.m16n8k8",
    "... mma.m16n8k32".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.codegen.pieces import loop
from cake.ir.layouts import OperandA, OperandB, depth
from cake.ir.layouts.legality import CHUNK, matrix_rows
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

LAYOUTS = {"mma_a": OperandA, "mma_b": OperandB}


class Ldmatrix(Primitive):
    """Operands of mma.sync."""

    names = ("ldmatrix",)
    parameters = (
        parameter("window", "shared"),
        parameter("layout", "text"),
        parameter("major", "text", default="K"),
    )
    uses = ("shared.latency", "shared.bytes")

    def signature(self, site: Site) -> Type | None:
        window = site.region("window")
        layout = LAYOUTS.get(site.text("layout"))
        if layout is None:
            raise site.refuse("layout", f"layout is one of {', '.join(LAYOUTS)}")
        if site.text("major") not in ("K", "MN"):
            raise site.refuse("major", "the window is stored K-major or MN-major")
        illegal = matrix_rows(window, (1, 2, 4))
        if illegal is not None:
            raise site.refuse("window", illegal.reason, help=illegal.help)
        if len(window.shape) != 2:
            raise site.refuse("window", "the window is rows x k", help="index the axes before them")
        shape, size = window.shape, window.dtype.bytes
        if site.text("major") == "MN":
            if size != 2:
                message = f"16-bit elements are transposed, this is {window.dtype.value}"
                raise site.refuse("major", message, help="store the operand with rows along k")
            shape = shape[::-1]
        return FragmentType(window.dtype, shape, layout(size))

    def effects(self, op: Op) -> Sequence[Effect]:
        region = op.region("window")
        buffer = region.buffer
        banks = Banked(buffer, matrix_traffic(region))
        return (Aligned(buffer, region.start, 16), Read(buffer, region.box), banks)

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        data = memory.read(op.region("window")).reshape(op.site.region("window").shape)
        return (data.T if op.args["major"] == "MN" else data).copy()

    def time(self, op: Op, parameters: Parameters) -> Use:
        region, shape = op.region("window"), op.result.shape
        matrices = shape[0] // 8 * (shape[1] * region.buffer.dtype.bytes // CHUNK)
        cycles = matrix_traffic(region).wavefronts * 128 / parameters("shared.bytes")
        return Use(matrices / 4, {"lsu": matrices / 4, "shared": cycles}, parameters("shared.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        assert op.result is not None
        window: Window = op.args["window"]
        major = op.site.text("major")
        if isinstance(op.result.type.layout, OperandA):
            _lower_a(out, window, op.result, major)
        else:
            _lower_b(out, window, op.result, major)

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
        Good(
            "both operands transposed on the way",
            """
@kernel(arch="sm_80")
def product(a: Global[bf16, K, M], b: Global[bf16, K, N], c: GlobalOut[f32, M, N]):
    require(M % 8 == 0, N % 8 == 0)
    grid(1)
    s = Shared[bf16, 48, 32](swizzle=64)
    t = Shared[bf16, 48, 32](swizzle=64)
    with role("all", warps=1):
        cp_async(s[:, :], a[0:+48, 0:+32])
        cp_async(t[:, :], b[0:+48, 0:+32])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f32, 32, 24, layout="mma")
        fa = ldmatrix(s[0:+16, :], layout="mma_a", major="MN")
        fb = ldmatrix(t[0:+16, 0:+24], layout="mma_b", major="MN")
        acc = mma(fa, fb, acc)
        ga = ldmatrix(s[16:+32, :], layout="mma_a", major="MN")
        gb = ldmatrix(t[16:+32, 0:+24], layout="mma_b", major="MN")
        acc = mma(ga, gb, acc)
        store(c[0:+32, 0:+24], acc, vector=2)
""",
            dims={"M": 32, "N": 24, "K": 48},
            expect=lambda i: {"c": i["a"].astype(np.float64).T @ i["b"].astype(np.float64)},
            rtol=1e-6,
        ),
        Good(
            "eight along k, plain and transposed",
            """
@kernel(arch="sm_80")
def product(a: Global[f16, M, K], b: Global[f16, K, N], c: GlobalOut[f32, M, N]):
    require(K == 24, N % 8 == 0)
    grid(1)
    s = Shared[f16, 16, 24]
    t = Shared[f16, 24, 16](swizzle=32)
    with role("all", warps=1):
        cp_async(s[:, :], a[0:+16, 0:+24])
        cp_async(t[:, :], b[0:+24, 0:+16])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f32, 16, 16, layout="mma")
        fa = ldmatrix(s[:, 0:+8], layout="mma_a")
        fb = ldmatrix(t[0:+8, :], layout="mma_b", major="MN")
        acc = mma(fa, fb, acc)
        ga = ldmatrix(s[:, 8:+16], layout="mma_a")
        gb = ldmatrix(t[8:+16, :], layout="mma_b", major="MN")
        acc = mma(ga, gb, acc)
        store(c[0:+16, 0:+16], acc, vector=2)
""",
            dims={"M": 16, "N": 16, "K": 24},
            expect=lambda i: {"c": i["a"].astype(np.float64) @ i["b"].astype(np.float64)},
            rtol=1e-6,
        ),
        Bad(
            "eight-bit elements that cannot be transposed",
            """
@kernel(arch="sm_89")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[e4m3, 32, 64](swizzle=64)
    with role("all", warps=1):
        f = ldmatrix(s[:, 0:+16], layout="mma_a", major="MN")  #! type/operand
""",
            dims={"N": 1},
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


def _load(
    out: Writer, count: int, result: Registers, to: str, window: Window, index: tuple[str, str], major: str
) -> None:
    """Load `count` matrices into the registers from `to` on; lanes 8j .. 8j + 7 name the rows of matrix j.
    `index` is their place along m or n, and along k."""
    trans, name = ("", f"cake_ldmatrix_x{count}")
    if major == "MN":
        trans, name, index = ".trans", f"{name}_trans", index[::-1]
    address = out.shared_address(window, [*["0"] * (len(window.size) - 2), *index])
    kind, constraint = result.ctype, "r"
    if kind == "float":
        name, constraint = f"{name}_float", "f"
    outputs = ", ".join(f'"={constraint}"(r[{i}])' for i in range(count))
    slots = ", ".join(f"%{i}" for i in range(count))
    load = out.helper(
        name,
        f"__device__ __forceinline__ void {name}({kind}* r, unsigned address) {{\n"
        f'    asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{slots}}}, [%{count}];"\n'
        f'        : {outputs} : "r"(address) : "memory");\n}}',
    )
    out.line(f"{load}(&{result.name}[{to}], {address});")


def _lower_a(out: Writer, window: Window, result: Registers, major: str) -> None:
    """Two matrices of m by two of k an instruction, or by one."""
    m, k = result.type.shape
    chunk, step = CHUNK // result.type.dtype.bytes, depth(k, result.type.dtype.bytes)
    row, place = f"{out.lane} % 16", f"{out.lane} / 16 * {chunk}"
    if major == "MN":
        # The rows in memory run along k, the lanes of a matrix with them.
        row, place = f"{out.lane} / 8 % 2 * 8", f"{out.lane} / 16 * 8 + {out.lane} % 8"
    count = 4 if step > chunk else 2
    if count == 2:
        place = f"{out.lane} % 8" if major == "MN" else "0"
    with loop(out, "i_", m // 16), loop(out, "j_", k // step):
        to = f"(i_ * {k // step} + j_) * {count}"
        _load(out, count, result, to, window, (f"i_ * 16 + {row}", f"j_ * {step} + {place}"), major)


def _lower_b(out: Writer, window: Window, result: Registers, major: str) -> None:
    """Four matrices an instruction: two of n by two of k, or four of k; fewer where these do not fit."""
    n, k = result.type.shape
    chunk, lane = CHUNK // result.type.dtype.bytes, out.lane
    chunks = k // chunk
    if chunks == 2 and n % 16 == 0:
        index = (f"{lane} / 16 * 8 + {lane} % 8", f"{lane} / 8 % 2 * {chunk}")
        if major == "MN":
            index = (f"{lane} / 16 * 8", f"{lane} % 16")
        with loop(out, "i_", n // 16):
            to = "i_ * 4"
            _load(out, 4, result, to, window, (f"i_ * 16 + {index[0]}", index[1]), major)
        return
    count = next(c for c in (4, 2, 1) if chunks % c == 0)
    steps = chunks // count
    turn = f"{lane} / 8 % {count} * {chunk}" if count > 1 else "0"
    row = f"{lane} % 8"
    if major == "MN":
        row, turn = "0", f"{lane} % {8 * count}"
    with loop(out, "i_", n // 8), loop(out, "j_", steps):
        to = f"(i_ * {steps} + j_) * {count}"
        _load(out, count, result, to, window, (f"i_ * 8 + {row}", f"j_ * {chunk * count} + {turn}"), major)
