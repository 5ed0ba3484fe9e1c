"""row_max, row_min, row_sum, row_argmin, row_argmax: one value for each row of a tile

Takes
    A tile of f32 in layout mma, wgmma or tensor; the result is held in its `_rows`. `row_argmin(v)` and
    `row_argmax(v)` give i32: the column of the extreme, the lowest of several.
Touches
    Registers only; the four lanes that share a row of mma and wgmma exchange values by shuffles.
Completes when
    Program order.
Source
    PTX ISA, "shfl.sync". A NaN is passed over where a number is in the row; in a row of NaN alone the extreme
    is infinite and its column is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from cake.codegen.pieces import loop
from cake.ir.layouts import LANES, Accumulator, RowsOf, TensorRows
from cake.ir.types import DType, FragmentType, Type
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
from cake_plugins.primitives._tiles import coordinate

Array = np.ndarray[Any, Any]
COMBINE = {"row_max": "fmaxf({0}, {1})", "row_min": "fminf({0}, {1})", "row_sum": "{0} + {1}"}
START = {"row_max": "__int_as_float(0xff800000)", "row_min": "__int_as_float(0x7f800000)", "row_sum": "0.0f"}


def _tile(site: Site) -> Accumulator | TensorRows:
    value = site.fragment("value")
    if value.dtype is not DType.f32:
        raise site.refuse(
            "value", f"reductions are in f32, this is {value.dtype.value}", help="cast(..., f32)"
        )
    if not isinstance(value.layout, Accumulator | TensorRows):
        raise site.refuse("value", f"rows are those of tiles, this is in layout {value.layout.name}")
    return value.layout


class _RowWise(Primitive):
    parameters = (parameter("value", "fragment"),)
    uses = ("alu.lanes", "alu.latency", "shuffle.latency", "shared.bytes")

    def effects(self, op: Op) -> Sequence[Effect]:
        return ()

    def time(self, op: Op, parameters: Parameters) -> Use:
        kind = op.site.fragment("value")
        shuffles = 0 if isinstance(kind.layout, TensorRows) else 2 * op.result.registers
        work = kind.registers + shuffles
        units = {"alu": work * LANES / parameters("alu.lanes")}
        if shuffles:
            units["shared"] = shuffles * 128 / parameters("shared.bytes")
        latency = parameters("alu.latency") + (2 * parameters("shuffle.latency") if shuffles else 0)
        return Use(work + shuffles, units, latency)


class RowReduce(_RowWise):
    """Extremes and sums."""

    names = tuple(COMBINE)

    def signature(self, site: Site) -> Type | None:
        tile = _tile(site)
        return FragmentType(DType.f32, site.fragment("value").shape[:1], RowsOf(tile))

    def value(self, op: Op, memory: Memory) -> Array | None:
        array = op.args["value"].array
        match op.site.call.name:
            case "row_max":
                found = np.fmax.reduce(array, axis=1, initial=-np.inf)
            case "row_min":
                found = np.fmin.reduce(array, axis=1, initial=np.inf)
            case _:
                with np.errstate(all="ignore"):
                    found = array.sum(axis=1, dtype=np.float32)
        return np.asarray(found, np.float32)

    def lower(self, op: Lowering, out: Writer) -> None:
        result, value = op.result, op.args["value"]
        assert result is not None
        name = op.site.call.name
        with loop(out, "r_", result.count):
            out.line(f"float y_ = {START[name]};")
            with _row(out, value):
                out.line(f"y_ = {COMBINE[name].format('y_', f'{value.name}[i_]')};")
            for lane in _lanes(value):
                shuffled = f"__shfl_xor_sync(0xffffffffu, y_, {lane})"
                out.line(f"y_ = {COMBINE[name].format('y_', shuffled)};")
            out.line(f"{result.name}[r_] = y_;")

    cases = (
        Good(
            "of an accumulator",
            """
@kernel(arch="sm_80")
def rows(y: GlobalOut[f32, 3, M]):
    grid(1)
    with role("tile", warps=1):
        acc = zeros(f32, 32, 24, layout="mma")
        v = cast(iota(acc, 0) * 3 - iota(acc, 1), f32)
        store(y[0, 0:+32], row_max(v))
        store(y[1, 0:+32], row_min(v))
        store(y[2, 0:+32], row_sum(v))
""",
            dims={"M": 32},
            expect=lambda i: {
                "y": np.stack([3 * np.arange(32), 3 * np.arange(32) - 23, 72 * np.arange(32) - 276])
            },
        ),
        Good(
            "of a warpgroup, and back over the tile",
            """
@kernel(arch="sm_80")
def rows(y: GlobalOut[f32, M, N]):
    grid(1)
    with role("tile", warpgroups=1):
        acc = zeros(f32, 64, 16, layout="wgmma")
        v = cast(iota(acc, 0) + iota(acc, 1), f32)
        store(y[0:+64, 0:+16], v - row_max(v), vector=2)
""",
            dims={"M": 64, "N": 16},
            expect=lambda i: {"y": np.broadcast_to(np.arange(16.0) - 15, (64, 16))},
        ),
        Bad(
            "of a row of vectors",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        m = row_max(load(x[:], vector=1, fill=0.0))  #! type/operand
""",
            dims={"N": 64},
        ),
    )


class RowArg(_RowWise):
    """The column of an extreme."""

    names = ("row_argmin", "row_argmax")

    def signature(self, site: Site) -> Type | None:
        tile = _tile(site)
        return FragmentType(DType.i32, site.fragment("value").shape[:1], RowsOf(tile))

    def value(self, op: Op, memory: Memory) -> Array | None:
        least = op.site.call.name == "row_argmin"
        worst = np.inf if least else -np.inf
        array = np.where(np.isnan(op.args["value"].array), np.float32(worst), op.args["value"].array)
        return np.asarray(array.argmin(axis=1) if least else array.argmax(axis=1), np.int32)

    def lower(self, op: Lowering, out: Writer) -> None:
        result, value = op.result, op.args["value"]
        assert result is not None
        least = op.site.call.name == "row_argmin"
        start, better = (START["row_min"], "<") if least else (START["row_max"], ">")
        clean = "fminf" if least else "fmaxf"
        column = coordinate(value.type, 1, out)
        with loop(out, "r_", result.count):
            out.line(f"float y_ = {start};")
            out.line("int at_ = 0x7fffffff;")
            with _row(out, value):
                out.line(f"const float x_ = {clean}({value.name}[i_], {start});")
                out.line(f"const int k_ = {column};")
                out.line(f"if (x_ {better} y_ || (x_ == y_ && k_ < at_)) y_ = x_, at_ = k_;")
            for lane in _lanes(value):
                out.line("{")
                out.line(f"const float x_ = __shfl_xor_sync(0xffffffffu, y_, {lane});")
                out.line(f"const int k_ = __shfl_xor_sync(0xffffffffu, at_, {lane});")
                out.line(f"if (x_ {better} y_ || (x_ == y_ && k_ < at_)) y_ = x_, at_ = k_;")
                out.line("}")
            out.line(f"{result.name}[r_] = at_;")

    cases = (
        Good(
            "the lowest of several",
            """
@kernel(arch="sm_80")
def nearest(y: GlobalOut[i32, 2, M]):
    grid(1)
    with role("tile", warpgroups=1):
        acc = zeros(f32, 64, 32, layout="wgmma")
        d = cast(iota(acc, 1) & 7 ^ iota(acc, 0) & 7, f32)
        store(y[0, 0:+64], row_argmin(d))
        store(y[1, 0:+64], row_argmax(d))
""",
            dims={"M": 64},
            expect=lambda i: {"y": np.stack([np.arange(64) & 7, np.arange(64) & 7 ^ 7])},
        ),
        Bad(
            "of integers",
            """
@kernel(arch="sm_80")
def wrong(y: GlobalOut[i32, N]):
    grid(1)
    with role("tile", warps=1):
        m = row_argmin(iota(zeros(f32, 16, 8, layout="mma"), 1))  #! type/operand
""",
            dims={"N": 64},
        ),
    )


def _lanes(value: Registers) -> tuple[int, ...]:
    """Lanes at this distance hold the rest of a row."""
    return () if isinstance(value.type.layout, TensorRows) else (1, 2)


@contextmanager
def _row(out: Writer, value: Registers) -> Iterator[None]:
    """The loop over this thread's registers of row number `r_`: `i_` is the register."""
    columns = value.type.shape[1]
    out.line("#pragma unroll")
    if isinstance(value.type.layout, TensorRows):
        out.line(f"for (int i_ = 0; i_ < {columns}; ++i_) {{")
    else:
        pairs = columns // 4
        out.line(f"for (int j_ = 0; j_ < {pairs}; ++j_) {{")
        # Pairs of columns alternate between a row and the one 8 below.
        out.line(f"const int i_ = (r_ / 2 * {pairs} + j_ / 2 * 2 + r_ % 2) * 2 + j_ % 2;")
    yield
    out.line("}")
