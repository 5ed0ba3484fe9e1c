"""load_rows, load_columns: a value for each row or column of a tile, from memory

Takes
    `load_columns(w[j * n:+n], layout="wgmma", fill=0.0)`, `load_rows(w[i:+m], layout="mma", fill=0.0)`: a
    window of one axis of f32, i32 or u32, in global or shared memory; the result goes with tiles of that
    layout (mma, wgmma, tensor). What sticks out of a global tensor is `fill`.
Touches
    Reads the window through the generic proxy: each warp its rows, or all columns.
Completes when
    The next instruction that uses the fragment starts: loads are synchronous to the warp.
Source
    PTX ISA, "Data Movement and Conversion Instructions: ld", "Matrix Fragments for mma.m16n8k16".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.codegen.pieces import CTYPES, bits, loop, shared_load
from cake.ir.layouts import ColumnsOf, RowsOf, named
from cake.ir.types import INT, FragmentType, Type
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
    Window,
    Writer,
    parameter,
)
from cake.machine.effects import Effect, Inside, Read, Region
from cake_plugins.primitives._rows import row_axis
from cake_plugins.primitives._tiles import coordinate


class LoadBeside(Primitive):
    """Scalar loads, the lanes that hold the same value from the same address."""

    names = ("load_rows", "load_columns")
    parameters = (
        parameter("window", "global", "shared"),
        parameter("layout", "text"),
        parameter("fill", "float", default=0.0),
    )
    uses = ("global.latency", "shared.latency", "shared.bytes")

    def signature(self, site: Site) -> Type | None:
        window = site.region("window")
        layout = named(f"{site.text('layout')}_{site.call.name.removeprefix('load_')}")
        if not isinstance(layout, RowsOf | ColumnsOf) or "_" in site.text("layout"):
            raise site.refuse("layout", "the layout is that of the tile: mma, wgmma or tensor")
        if len(window.shape) != 1:
            raise site.refuse("window", f"a window of one axis, this one has {len(window.shape)}")
        if window.dtype not in CTYPES:
            raise site.refuse("window", f"values beside a tile are f32, i32 or u32, not {window.dtype.value}")
        fill = site.operand("fill")
        if fill.constant is None or (not window.dtype.is_float and site.has("fill") and fill.type != INT):
            raise site.refuse("fill", f"`fill` is a number of {window.dtype.value}, known at compile time")
        return FragmentType(window.dtype, window.shape, layout)

    def _mine(self, op: Op) -> Region:
        region, layout = op.region("window"), op.result.layout
        if isinstance(layout, ColumnsOf):
            return region
        axis, rows = row_axis(region.size), op.result.layout.warp_shape(op.result.shape)[0]
        start, size = [0] * len(region.size), list(region.size)
        start[axis], size[axis] = op.warp % layout.warps * rows, rows
        return region.sub(tuple(start), tuple(size))

    def effects(self, op: Op) -> Sequence[Effect]:
        mine = self._mine(op)
        read = Read(mine.buffer, mine.box)
        return (Inside(op.region("window")), read) if mine.buffer.space == "shared" else (read,)

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        return memory.read(self._mine(op), op.args["fill"]).reshape(-1).copy()

    def time(self, op: Op, parameters: Parameters) -> Use:
        count = op.result.registers
        if op.region("window").buffer.space == "shared":
            units = {"lsu": count, "shared": count * 128 / parameters("shared.bytes")}
            return Use(2 * count, units, parameters("shared.latency"))
        return Use(2 * count, {"lsu": count}, parameters("global.latency"), l2_read=32 * count)

    def lower(self, op: Lowering, out: Writer) -> None:
        result, window = op.result, op.args["window"]
        assert result is not None
        assert isinstance(window, Window)
        kind = CTYPES[result.type.dtype]
        index = ["0"] * len(window.size)
        with loop(out, "i_", result.count):
            out.line(f"const int r_ = {coordinate(result.type, 0, out)};")
            index[row_axis(window.size)] = "r_"
            if window.buffer.space == "shared":
                word = f"{shared_load(out, 4)}({out.shared_address(window, index)})"
                text = f"__uint_as_float({word})" if kind == "float" else f"static_cast<{kind}>({word})"
            else:
                text = f"{window.buffer.name}[{out.global_index(window, index)}]"
                inside = out.in_bounds(window, index)
                if inside != "true":
                    constant = op.site.operand("fill").constant
                    pattern = f"{bits(result.type.dtype, float(constant or 0)):#x}u"
                    fill = (
                        f"__uint_as_float({pattern})"
                        if kind == "float"
                        else f"static_cast<{kind}>({pattern})"
                    )
                    text = f"{inside} ? {text} : {fill}"
            out.line(f"{result.name}[i_] = {text};")

    cases = (
        Good(
            "a bias for each column, a scale for each row",
            """
@kernel(arch="sm_80")
def affine(b: Global[f32, N], s: Global[f32, M], y: GlobalOut[f32, M, N]):
    grid(1)
    with role("tile", warps=1):
        acc = full(f32, 32, 16, value=1.0, layout="mma")
        bias = load_columns(b[0:+16], layout="mma")
        scale = load_rows(s[0:+32], layout="mma", fill=1.0)
        store(y[0:+32, 0:+16], acc * scale + bias, vector=1)
""",
            dims={"M": 29, "N": 13},
            expect=lambda i: {"y": i["s"][:, None] + i["b"][None, :]},
            rtol=1e-6,
        ),
        Good(
            "from shared memory, by a warpgroup",
            """
@kernel(arch="sm_80")
def columns(b: Global[f32, N], y: GlobalOut[f32, M, N]):
    grid(1)
    s = Shared[f32, 128]
    with role("tile", warpgroups=1):
        store(s[:], load(b[:], vector=1, fill=0.0), vector=1)
        cta_sync()
        acc = zeros(f32, 64, 128, layout="wgmma")
        store(y[0:+64, 0:+128], acc + load_columns(s[:], layout="wgmma"), vector=2)
""",
            dims={"M": 64, "N": 128},
            expect=lambda i: {"y": np.broadcast_to(i["b"], (64, 128))},
        ),
        Bad(
            "beside rows held as vectors",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("tile", warps=1):
        v = load_columns(x[0:+16], layout="vector")  #! type/operand
""",
            dims={"N": 16},
        ),
    )
