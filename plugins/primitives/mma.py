"""mma: matrix multiply-accumulate of one warp, mma.sync.m16n8k16 (sm_80)

Takes
    `acc = mma(a, b, acc)`: a is m x k in layout mma_a, b is n x k in layout mma_b, acc is m x n f32 in layout
    mma; computes acc + a @ b.T in the registers of acc.
Touches
    Registers only.
Completes when
    Program order.
Source
    PTX ISA, "Multiply-and-Accumulate Instruction: mma", "Matrix Fragments for mma.m16n8k16".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.codegen.pieces import loop
from cake.ir.layouts import Accumulator, OperandA, OperandB
from cake.ir.types import Type
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
    Writer,
    parameter,
)
from cake.machine.effects import Effect


class Mma(Primitive):
    """16-bit operands, f32 accumulator."""

    names = ("mma",)
    in_place = "accumulator"
    parameters = (
        parameter("a", "fragment"),
        parameter("b", "fragment"),
        parameter("accumulator", "fragment"),
    )
    uses = ("mma.flops", "mma.latency")

    def signature(self, site: Site) -> Type | None:
        a, b, acc = (site.fragment(name) for name in ("a", "b", "accumulator"))
        for name, kind, layout in (
            ("a", a, OperandA()),
            ("b", b, OperandB()),
            ("accumulator", acc, Accumulator(1)),
        ):
            if kind.layout != layout:
                raise site.refuse(
                    name, f"`{name}` is in layout {layout.name}, this one in {kind.layout.name}"
                )
        if a.dtype is not b.dtype:
            raise site.refuse("b", f"operands differ: {a.dtype.value} and {b.dtype.value}")
        if a.shape[1] != b.shape[1] or acc.shape != (a.shape[0], b.shape[0]):
            message = f"{list(a.shape)} times {list(b.shape)} transposed is not {list(acc.shape)}"
            raise site.refuse("accumulator", message)
        return acc

    def effects(self, op: Op) -> Sequence[Effect]:
        return ()

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        a, b = (op.args[n].array.astype(np.float32) for n in ("a", "b"))
        with np.errstate(all="ignore"):
            return np.asarray(op.args["accumulator"].array + a @ b.T, np.float32)

    def time(self, op: Op, parameters: Parameters) -> Use:
        m, k = op.site.fragment("a").shape
        n = op.site.fragment("b").shape[0]
        instructions = m // 16 * (n // 8) * (k // 16)
        return Use(
            instructions, {"tensor": 2 * m * n * k / parameters("mma.flops")}, parameters("mma.latency")
        )

    def lower(self, op: Lowering, out: Writer) -> None:
        a: Registers = op.args["a"]
        b: Registers = op.args["b"]
        assert op.result is not None
        m, k = a.type.shape
        n = b.type.shape[0]
        kind = a.type.dtype.value
        name = f"cake_mma_{kind}"
        step = out.helper(
            name,
            f"__device__ __forceinline__ void {name}(float* d, const unsigned* a, const unsigned* b) {{\n"
            f'    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 "\n'
            '        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"\n'
            '        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])\n'
            '        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));\n}',
        )
        blocks_k = k // 16
        with loop(out, "k_", blocks_k), loop(out, "i_", m // 16), loop(out, "j_", n // 8):
            d = f"&{op.result.name}[i_ * {n // 2} + j_ * 4]"
            out.line(
                f"{step}({d}, &{a.name}[(i_ * {blocks_k} + k_) * 4], &{b.name}[(j_ * {blocks_k} + k_) * 2]);"
            )

    cases = (
        Good(
            "two blocks each way",
            """
@kernel(arch="sm_80")
def product(a: Global[f16, M, K], b: Global[f16, N, K], c: GlobalOut[f32, M, N]):
    require(K % 8 == 0, N % 2 == 0)
    grid(1)
    s = Shared[f16, 32, 32](swizzle=64)
    t = Shared[f16, 16, 32](swizzle=64)
    with role("all", warps=1):
        cp_async(s[:, :], a[0:+32, 0:+32])
        cp_async(t[:, :], b[0:+16, 0:+32])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f32, 32, 16, layout="mma")
        for k in unroll(2):
            fa = ldmatrix(s[:, k * 16:+16], layout="mma_a")
            fb = ldmatrix(t[:, k * 16:+16], layout="mma_b")
            acc = mma(fa, fb, acc)
        store(c[0:+32, 0:+16], acc, vector=2)
""",
            dims={"M": 32, "N": 16, "K": 32},
            expect=lambda i: {"c": i["a"].astype(np.float64) @ i["b"].astype(np.float64).T},
            rtol=1e-6,
        ),
        Good(
            "a padded product",
            """
@kernel(arch="sm_80")
def product(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0, M % 2 == 0)
    grid(1)
    s = Shared[bf16, 16, 16](swizzle=32)
    with role("all", warps=1):
        cp_async(s[:, :], a[0:+16, 0:+16])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f32, 16, 16, layout="mma")
        acc = mma(ldmatrix(s[:, :], layout="mma_a"), ldmatrix(s[:, :], layout="mma_b"), acc)
        store(c[0:+16, 0:+16], acc, vector=1)
""",
            dims={"M": 10, "K": 8},
            expect=lambda i: {"c": i["a"].astype(np.float64) @ i["a"].astype(np.float64).T},
            rtol=1e-6,
        ),
        Bad(
            "not assigned back",
            """
@kernel(arch="sm_80")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[bf16, 16, 16](swizzle=32)
    with role("all", warps=1):
        acc = zeros(f32, 16, 16, layout="mma")
        fa = ldmatrix(s[:, :], layout="mma_a")
        fb = ldmatrix(s[:, :], layout="mma_b")
        d = mma(fa, fb, acc)  #! type/in-place
""",
            dims={"N": 1},
        ),
    )
