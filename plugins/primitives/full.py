"""full: a fragment that holds one number everywhere; iota: one that holds its own coordinates

Takes
    `full(f32, 64, 128, value=0.0, layout="wgmma")`, `full(f32, 64, value=-inf, layout="wgmma_rows")`: a
    tile, or a value for each of its rows or columns; layouts are mma, wgmma and tensor with nothing,
    `_rows` or `_columns` behind. `iota(v, axis)`: i32, the coordinate along `axis` of each element of a
    fragment `v`.
Touches
    Registers only.
Completes when
    Program order.
Source
    "Matrix Fragments for mma.m16n8k16" and "Register Fragments" of the PTX ISA say which thread holds what.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.codegen.pieces import CTYPES, loop, number
from cake.ir.layouts import LANES, Accumulator, ColumnsOf, RowsOf, TensorRows, Vector, named
from cake.ir.types import INT, DType, FragmentType, Type
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
from cake_plugins.primitives._tiles import coordinate


class Full(Primitive):
    """One number in every register."""

    names = ("full",)
    parameters = (
        parameter("dtype", "dtype"),
        parameter("extents", "int", variadic=True),
        parameter("value", "float"),
        parameter("layout", "text"),
    )
    uses = ("alu.lanes",)

    def signature(self, site: Site) -> Type | None:
        dtype = site.dtype("dtype").dtype
        if dtype not in CTYPES or dtype is DType.pred:
            raise site.refuse("dtype", "a register holds f32, i32 or u32")
        layout = named(site.text("layout"))
        if layout is None:
            help = "mma, wgmma or tensor, with _rows or _columns for a value for each"
            raise site.refuse("layout", f"no layout is called {site.text('layout')!r}", help=help)
        if not dtype.is_float and site.operand("value").type != INT:
            raise site.refuse("value", f"a fragment of {dtype.value} holds integers")
        extents = []
        for operand in site.operands["extents"]:
            if not isinstance(operand.constant, int):
                raise site.refuse("extents", "extents are known at compile time")
            extents.append(operand.constant)
        return FragmentType(dtype, tuple(extents), layout)

    def effects(self, op: Op) -> Sequence[Effect]:
        return ()

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        kind = op.result
        return np.full(kind.layout.warp_shape(kind.shape), op.args["value"], kind.dtype.numpy)

    def time(self, op: Op, parameters: Parameters) -> Use:
        count = op.result.registers
        return Use(count, {"alu": count * LANES / parameters("alu.lanes")})

    def lower(self, op: Lowering, out: Writer) -> None:
        assert op.result is not None
        text = op.args["value"]
        constant = op.site.operand("value").constant
        if op.result.type.dtype.is_float and isinstance(constant, int | float):
            text = number(float(constant))
        with loop(out, "i_", op.result.count):
            out.line(f"{op.result.name}[i_] = {text};")

    cases = (
        Good(
            "a tile",
            """
@kernel(arch="sm_80")
def fill(y: GlobalOut[f32, M, N]):
    grid(1)
    with role("tile", warps=1):
        store(y[0:+16, 0:+8], full(f32, 16, 8, value=0.1, layout="mma"), vector=2)
""",
            dims={"M": 16, "N": 8},
            expect=lambda i: {"y": np.full((16, 8), np.float32(0.1))},
        ),
        Good(
            "integers, one a row",
            """
@kernel(arch="sm_80")
def fill(y: GlobalOut[i32, M]):
    grid(1)
    with role("tile", warpgroups=1):
        store(y[0:+64], full(i32, 64, value=7, layout="wgmma_rows"))
""",
            dims={"M": 50},
            expect=lambda i: {"y": np.full(50, 7)},
        ),
        Bad(
            "a layout without a name",
            """
@kernel(arch="sm_80")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    with role("tile", warps=1):
        v = full(f32, 16, 8, value=0.0, layout="rows")  #! type/operand
""",
            dims={"N": 1},
        ),
    )


class Iota(Primitive):
    """Coordinates."""

    names = ("iota",)
    parameters = (parameter("like", "fragment"), parameter("axis", "int", default=0))
    uses = ("alu.lanes",)

    def signature(self, site: Site) -> Type | None:
        like, axis = site.fragment("like"), site.integer("axis")
        if not 0 <= axis < len(like.shape):
            raise site.refuse("axis", f"the fragment has {len(like.shape)} axes")
        if not isinstance(like.layout, Vector | Accumulator | TensorRows | RowsOf | ColumnsOf):
            raise site.refuse("like", f"no coordinates in layout {like.layout.name}")
        return FragmentType(DType.i32, like.shape, like.layout)

    def effects(self, op: Op) -> Sequence[Effect]:
        return ()

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        kind, axis = op.result, op.args["axis"]
        layout, shape = kind.layout, kind.layout.warp_shape(kind.shape)
        if isinstance(layout, Vector):
            chunk, item = np.indices(shape, np.int32)
            return np.asarray(chunk * layout.stride + op.warp * LANES * layout.width + item, np.int32)
        first = op.warp % layout.warps * shape[0] if axis == 0 and not isinstance(layout, ColumnsOf) else 0
        return np.asarray(first + np.indices(shape, np.int32)[axis], np.int32)

    def time(self, op: Op, parameters: Parameters) -> Use:
        count = op.result.registers
        return Use(count, {"alu": count * LANES / parameters("alu.lanes")})

    def lower(self, op: Lowering, out: Writer) -> None:
        assert op.result is not None
        text = coordinate(op.result.type, op.site.integer("axis"), out)
        with loop(out, "i_", op.result.count):
            out.line(f"{op.result.name}[i_] = {text};")

    cases = (
        Good(
            "of a row, beyond whose end nothing counts",
            """
@kernel(arch="sm_80")
def count(x: Global[f32, N], y: GlobalOut[i32, N]):
    grid(1)
    with role("row", warps=2):
        store(y[:], iota(load(x[:], vector=2, fill=0.0)), vector=2)
""",
            dims={"N": 150},
            expect=lambda i: {"y": np.arange(150)},
        ),
        Good(
            "rows and columns of a tile",
            """
@kernel(arch="sm_80")
def count(y: GlobalOut[i32, M, N], z: GlobalOut[i32, M]):
    grid(1)
    with role("tile", warpgroups=1):
        acc = zeros(f32, 128, 24, layout="wgmma")
        store(y[0:+128, 0:+24], iota(acc, 0) * 100 + iota(acc, 1), vector=1)
        store(z[0:+128], iota(full(i32, 128, value=0, layout="wgmma_rows")))
""",
            dims={"M": 128, "N": 24},
            expect=lambda i: {
                "y": 100 * np.arange(128)[:, None] + np.arange(24)[None, :],
                "z": np.arange(128),
            },
        ),
        Bad(
            "an axis that is not there",
            """
@kernel(arch="sm_80")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    with role("tile", warps=1):
        v = iota(zeros(f32, 16, 8, layout="mma"), 2)  #! type/operand
""",
            dims={"N": 1},
        ),
    )
