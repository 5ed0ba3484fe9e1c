"""store: ordinary stores of a fragment to global or shared memory

Takes
    `store(y[row, :], v, vector=w)` a row that the role holds as vectors; `store(s[i], scalar)` one element, by
    lane 0 of each executing warp; `store(c[row:+m, col:+n], acc, vector=2)` an accumulator, two neighbouring
    columns at once (or one).
Touches
    Writes the elements of the window that lie inside the tensor, through the generic proxy. Phantoms are
    never written.
Completes when
    Program order: later accesses of the same thread see it; others after a rendezvous.
Source
    PTX ISA, "Data Movement and Conversion Instructions: st".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.codegen.pieces import ACCESS, loop, packing, shared_store
from cake.ir.layouts import LANES, Accumulator, Replicated, Vector
from cake.ir.types import RegionType, Type
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
from cake.machine.effects import Aligned, Box, Effect, Inside, Region, Write


def row_axis(size: tuple[int, ...]) -> int:
    """The axis along which a one-dimensional window runs."""
    return max(range(len(size)), key=lambda axis: size[axis])


class Store(Primitive):
    """Rows, scalars and accumulators to memory."""

    names = ("store",)
    parameters = (
        parameter("window", "global", "shared"),
        parameter("value", "fragment"),
        parameter("vector", "int", default=0),
    )
    uses = ("shared.bytes",)

    def signature(self, site: Site) -> Type | None:
        window, value = site.region("window"), site.fragment("value")
        if window.dtype is not value.dtype:
            message = f"the window holds {window.dtype.value}, the fragment {value.dtype.value}"
            raise site.refuse("value", message, help=f"cast(..., {window.dtype.value})")
        if window.buffer.space == "global" and not window.buffer.output:
            raise site.refuse("window", f"`{window.buffer.name}` is an input (Global); outputs are GlobalOut")
        if window.shape != value.shape and not (value.shape == () and all(n == 1 for n in window.window)):
            message = f"the window is {list(window.shape)}, the fragment {list(value.shape)}"
            raise site.refuse("value", message)
        width = site.integer("vector") if site.has("vector") else 1
        match value.layout:
            case Vector(width=held):
                self._check_row(site, window, width, held)
            case Accumulator():
                self._check_tile(site, window, width)
            case Replicated():
                if value.shape != ():
                    raise site.refuse("value", "a replicated fragment is stored element by element")
            case _:
                raise site.refuse("value", f"no store from layout {value.layout.name}")
        return None

    def _check_row(self, site: Site, window: RegionType, width: int, held: int) -> None:
        if width != held:
            raise site.refuse("vector", f"the fragment holds vectors of {held}", help=f"vector={held}")
        length, pitch = window.shape[0], window.buffer.shape[-1]
        if length % width or pitch % width:
            raise site.refuse(
                "vector", f"rows of {length} elements (pitch {pitch}) are not whole vectors of {width}"
            )

    def _check_tile(self, site: Site, window: RegionType, width: int) -> None:
        if window.buffer.space == "shared":
            raise site.refuse("window", "accumulators go to shared memory by `stmatrix`")
        if width not in (1, 2):
            raise site.refuse("vector", "a thread holds 2 neighbouring columns: vector is 1 or 2")
        if width == 2 and window.buffer.shape[-1] % 2:
            message = f"rows of `{window.buffer.name}` hold {window.buffer.shape[-1]} elements, an odd number"
            raise site.refuse("vector", message, help="vector=1, or add `require(N % 2 == 0)`")

    def boxes(self, op: Op) -> list[Box]:
        region, value = op.region("window"), op.site.fragment("value")
        layout = value.layout
        if isinstance(layout, Vector):
            axis = row_axis(region.size)
            out = []
            width = LANES * layout.width
            for chunk in range(layout.chunks(value.shape)):
                start = chunk * layout.stride + op.warp * width
                if start < value.shape[0]:
                    box = list(region.box)
                    box[axis] = (region.start[axis] + start, min(width, value.shape[0] - start))
                    out.append(tuple(box))
            return out
        if isinstance(layout, Accumulator):
            return [self.tile(op).box]
        return [region.box]

    def tile(self, op: Op) -> Region:
        """The rows of the window that this warp holds."""
        region, value = op.region("window"), op.site.fragment("value")
        rows = value.layout.warp_shape(value.shape)[0]
        first = len(region.size) - 2
        start = [0] * len(region.size)
        size = list(region.size)
        start[first] = op.warp % value.layout.warps * rows
        size[first] = rows
        return region.sub(tuple(start), tuple(size))

    def effects(self, op: Op) -> Sequence[Effect]:
        region, layout = op.region("window"), op.site.fragment("value").layout
        buffer = region.buffer
        writes = [Write(buffer, box) for box in self.boxes(op)]
        size = max(1, op.args["vector"]) * buffer.dtype.bytes
        if isinstance(layout, Accumulator):
            return [Aligned(buffer, region.start, size), *writes]
        return [Inside(region), Aligned(buffer, region.start, size), *writes]

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        region, kind = op.region("window"), op.site.fragment("value")
        array = op.args["value"].array
        if isinstance(kind.layout, Vector):
            axis, width = row_axis(region.size), LANES * kind.layout.width
            for chunk, part in enumerate(array):
                start = chunk * kind.layout.stride + op.warp * width
                count = min(width, kind.shape[0] - start)
                if count > 0:
                    at, size = [0] * len(region.size), list(region.size)
                    at[axis], size[axis] = start, count
                    memory.write(region.sub(tuple(at), tuple(size)), part[:count])
        elif isinstance(kind.layout, Accumulator):
            memory.write(self.tile(op), array)
        else:
            memory.write(region, array)
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        region, kind = op.region("window"), op.site.fragment("value")
        if region.buffer.space == "shared":
            return Use(2, {"lsu": 1, "shared": 128 / parameters("shared.bytes")})
        stores = kind.registers
        if isinstance(kind.layout, Vector):
            stores = kind.layout.chunks(kind.shape)
        elif op.args["vector"] == 2:
            stores = kind.registers // 2
        moved = sum(int(np.prod([n for _, n in box])) for box in self.boxes(op)) * kind.dtype.bytes
        # Sectors of 32 bytes: an accumulator's 4 lanes of a quad fill half a sector each with 16-bit elements.
        whole = 2 if isinstance(kind.layout, Accumulator) and kind.dtype.bytes == 2 else 1
        return Use(2 * stores, {"lsu": stores * whole}, l2_write=moved)

    def lower(self, op: Lowering, out: Writer) -> None:
        window: Window = op.args["window"]
        value: Registers = op.args["value"]
        match value.type.layout:
            case Vector() as layout:
                _lower_row(out, window, value, layout)
            case Accumulator() as layout:
                _lower_tile(out, window, value, layout, 2 if op.site.operand("vector").constant == 2 else 1)
            case _:
                _lower_scalar(out, window, value)

    cases = (
        Good(
            "a row of f32",
            """
@kernel(arch="sm_80")
def copy(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=2):
        store(y[:], load(x[:], vector=4, fill=0.0), vector=4)
""",
            dims={"N": 320},
            expect=lambda inputs: {"y": inputs["x"]},
        ),
        Good(
            "an accumulator clipped at the edges",
            """
@kernel(arch="sm_80")
def ones(y: GlobalOut[f32, M, N]):
    grid(1)
    with role("tile", warps=1):
        acc = zeros(f32, 32, 16, layout="mma")
        store(y[0:+32, 0:+16], acc + 1.0, vector=2)
""",
            dims={"M": 19, "N": 10},
            expect=lambda inputs: {"y": np.ones((19, 10), np.float32)},
        ),
        Bad(
            "into an input",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        store(x[:], v, vector=1)  #! type/operand
""",
            dims={"N": 32},
        ),
        Bad(
            "without a cast",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N], y: GlobalOut[bf16, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        store(y[:], v, vector=1)  #! type/operand
""",
            dims={"N": 32},
        ),
    )


def _fields(value: Registers, first: str, count: int) -> list[str]:
    """`count` registers from index expression `first` on, as unsigned."""
    names = [f"{value.name}[{first} + {i}]" for i in range(count)]
    if value.ctype == "float":
        return [f"__float_as_uint({name})" for name in names]
    return [f"static_cast<unsigned>({name})" for name in names] if value.ctype == "int" else names


def _lower_row(out: Writer, window: Window, value: Registers, layout: Vector) -> None:
    dtype, width = value.type.dtype, layout.width
    length = value.type.shape[0]
    kind, registers = ACCESS[width * dtype.bytes]
    with loop(out, "c_", layout.chunks(value.type.shape)):
        out.line(f"const int col_ = c_ * {layout.stride} + {out.thread} * {width};")
        guard = f"if (col_ < {length}) " if layout.phantoms(value.type.shape) else ""
        index = ["0"] * len(window.size)
        index[row_axis(window.size)] = "col_"
        per = packing(dtype)
        if width % per:
            whole = f"static_cast<{kind}>({value.name}[c_ / {per}] >> ({8 * dtype.bytes} * (c_ % {per})))"
        else:
            fields = _fields(value, f"c_ * {registers}", registers)
            whole = fields[0] if registers == 1 else f"make_{kind}({', '.join(fields)})"
        if window.buffer.space == "shared":
            store = shared_store(out, width * dtype.bytes)
            out.line(f"{guard}{store}({out.shared_address(window, index)}, {whole});")
        else:
            address = f"{window.buffer.name} + {out.global_index(window, index)}"
            out.line(f"{guard}*reinterpret_cast<{kind}*>({address}) = {whole};")


def _lower_scalar(out: Writer, window: Window, value: Registers) -> None:
    dtype = value.type.dtype
    kind, _ = ACCESS[dtype.bytes]
    index = ["0"] * len(window.size)
    whole = _fields(value, "0", 1)[0]
    if dtype.bytes < 4:
        whole = f"static_cast<{kind}>({whole})"
    if window.buffer.space == "shared":
        store = shared_store(out, dtype.bytes)
        out.line(f"if ({out.lane} == 0) {store}({out.shared_address(window, index)}, {whole});")
    else:
        address = f"{window.buffer.name} + {out.global_index(window, index)}"
        out.line(f"if ({out.lane} == 0) *reinterpret_cast<{kind}*>({address}) = {whole};")


def _lower_tile(out: Writer, window: Window, value: Registers, layout: Accumulator, width: int) -> None:
    rows, columns = value.type.shape
    dtype = value.type.dtype
    per_block = columns // 2
    warp_rows = rows // layout.over
    base = f"{out.warp} % {layout.over} * {warp_rows} + " if layout.over > 1 else ""
    axes = len(window.size)
    kind, _ = ACCESS[dtype.bytes * width]
    with loop(out, "i_", value.type.registers // 2):
        out.line(f"const int r_ = {base}i_ / {per_block // 2} * 16 + i_ % 2 * 8 + {out.lane} / 4;")
        out.line(f"const int k_ = i_ % {per_block // 2} / 2 * 8 + {out.lane} % 4 * 2;")
        for item in range(2 // width):
            index = ["0"] * (axes - 2) + ["r_", f"k_ + {item}" if item else "k_"]
            if width == 2:
                fields = _fields(value, "i_", 1) if dtype.bytes == 2 else _fields(value, "i_ * 2", 2)
                whole = fields[0] if len(fields) == 1 else f"make_{kind}({', '.join(fields)})"
            elif dtype.bytes == 2:
                whole = f"static_cast<{kind}>({value.name}[i_] >> {16 * item})"
            else:
                whole = _fields(value, f"i_ * 2 + {item}", 1)[0]
            address = f"{window.buffer.name} + {out.global_index(window, index)}"
            condition = out.in_bounds(window, index)
            out.line(f"if ({condition}) *reinterpret_cast<{kind}*>({address}) = {whole};")
