"""zeros: a fragment of zeros, the start of an accumulation

Takes
    `zeros(f32, m, n, layout="mma")` for mma.sync (one warp), `layout="wgmma"` (one warpgroup), both also of
    f16, or `layout="tensor"` (rows of tensor memory).
Touches
    Registers only.
Completes when
    Program order; `wgmma` needs `wgmma_fence()` after it.
Source
    PTX ISA, "Matrix Fragments for mma.m16n8k16", "Register Fragments" of wgmma.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.codegen.pieces import loop
from cake.ir.layouts import Accumulator, TensorRows
from cake.ir.types import DType, FragmentType, Type
from cake.kinds.primitive import (
    Bad,
    Good,
    Lowering,
    Memory,
    Op,
    Parameters,
    Primitive,
    Site,
    Use,
    Writer,
    parameter,
)
from cake.machine.effects import Effect

LAYOUTS = {"mma": Accumulator(1), "wgmma": Accumulator(4), "tensor": TensorRows()}


class Zeros(Primitive):
    """An accumulator of zeros."""

    names = ("zeros",)
    parameters = (
        parameter("dtype", "dtype"),
        parameter("rows", "int"),
        parameter("columns", "int"),
        parameter("layout", "text"),
    )
    uses = ("alu.lanes",)

    def signature(self, site: Site) -> Type | None:
        dtype, layout = site.dtype("dtype").dtype, LAYOUTS.get(site.text("layout"))
        halves = dtype is DType.f16 and site.text("layout") in ("mma", "wgmma")
        if dtype is not DType.f32 and not halves:
            raise site.refuse("dtype", "accumulators are f32, those of mma and wgmma f16 as well")
        if layout is None:
            raise site.refuse("layout", f"layout is one of {', '.join(LAYOUTS)}")
        return FragmentType(dtype, (site.integer("rows"), site.integer("columns")), layout)

    def effects(self, op: Op) -> Sequence[Effect]:
        return ()

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        return np.zeros(op.result.layout.warp_shape(op.result.shape), op.result.dtype.numpy)

    def time(self, op: Op, parameters: Parameters) -> Use:
        count = op.result.registers
        return Use(count, {"alu": count * 32 / parameters("alu.lanes")})

    def lower(self, op: Lowering, out: Writer) -> None:
        assert op.result is not None
        with loop(out, "i_", op.result.count):
            out.line(f"{op.result.name}[i_] = {'0.0f' if op.result.ctype == 'float' else '0u'};")

    cases = (
        Good(
            "a warp's tile",
            """
@kernel(arch="sm_80")
def zero(y: GlobalOut[f32, M, N]):
    grid(1)
    with role("tile", warps=1):
        store(y[0:+16, 0:+8], zeros(f32, 16, 8, layout="mma"), vector=2)
""",
            dims={"M": 16, "N": 8},
            expect=lambda i: {"y": np.zeros((16, 8), np.float32)},
        ),
        Good(
            "a warpgroup's tile",
            """
@kernel(arch="sm_80")
def zero(y: GlobalOut[f32, M, N]):
    grid(1)
    with role("tile", warpgroups=1):
        store(y[0:+64, 0:+8], zeros(f32, 64, 8, layout="wgmma"), vector=2)
""",
            dims={"M": 64, "N": 8},
            expect=lambda i: {"y": np.zeros((64, 8), np.float32)},
        ),
        Bad(
            "rows that no fragment has",
            """
@kernel(arch="sm_80")
def zero(y: GlobalOut[f32, M, N]):
    grid(1)
    with role("tile", warps=1):
        acc = zeros(f32, 24, 8, layout="mma")  #! type/layout
""",
            dims={"M": 24, "N": 8},
        ),
    )
