"""store: ordinary stores of a fragment to global or shared memory

Takes
    `store(y[row, c:+n], v, vector=w)` a row that the role holds as vectors; `store(s[i], scalar)` one
    element, by lane 0 of each executing warp; `store(c[row:+m, col:+n], acc, vector=2)` an accumulator, two
    neighbouring columns at once (or one); rows from tensor memory, `vector` columns at once;
    `store(y[row:+m], r)` a value for each row of a tile. `cache` is "streaming" or "no_allocate" (not in L1).
Touches
    Writes the elements of the window that lie inside the tensor, through the generic proxy: rows may stick
    out along themselves (their extent is then whole vectors), tiles on both axes. Phantoms are never written.
Completes when
    Program order: later accesses of the same warp see it (its lanes meet around a store to shared memory);
    others after a rendezvous.
Source
    PTX ISA, "Data Movement and Conversion Instructions: st".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from cake.codegen.pieces import ACCESS, global_store, joined, loop, packing, shared_store
from cake.ir.layouts import LANES, Accumulator, Replicated, RowsOf, TensorRows, Vector
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
from cake.machine.effects import Aligned, Banked, Effect, Inside, Region, Write
from cake_plugins.primitives._banks import row_traffic
from cake_plugins.primitives._rows import beyond, check_vector, clipped, row_axis, row_parts
from cake_plugins.primitives._tiles import coordinate

CACHE = {"": "", "streaming": ".cs", "no_allocate": ".L1::no_allocate"}
"""Cache hint -> the qualifier of st.global."""


class Store(Primitive):
    """Rows, scalars and accumulators to memory."""

    names = ("store",)
    parameters = (
        parameter("window", "global", "shared"),
        parameter("value", "fragment"),
        parameter("vector", "int", default=0),
        parameter("cache", "text", default=""),
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
        if site.text("cache") not in CACHE or (site.has("cache") and window.buffer.space == "shared"):
            choices = ", ".join(repr(c) for c in CACHE)
            raise site.refuse("cache", f"`cache` is one of {choices}, for global memory")
        width = site.integer("vector") if site.has("vector") else 1
        match value.layout:
            case Vector(width=held):
                self._check_row(site, window, width, held)
            case Accumulator():
                self._check_tile(site, window, width)
            case TensorRows():
                self._check_rows(site, window, width)
            case RowsOf():
                if width != 1 or window.dtype.bytes < 2:
                    raise site.refuse("vector", "a value for each row is stored by itself: vector is 1")
            case Replicated():
                if value.shape != ():
                    raise site.refuse("value", "a replicated fragment is stored element by element")
            case _:
                raise site.refuse("value", f"no store from layout {value.layout.name}")
        return None

    def _check_row(self, site: Site, window: RegionType, width: int, held: int) -> None:
        if width != held:
            raise site.refuse("vector", f"the fragment holds vectors of {held}", help=f"vector={held}")
        check_vector(site, window, width, clips=window.buffer.space == "global")

    def _check_tile(self, site: Site, window: RegionType, width: int) -> None:
        if window.window[-2:] != window.shape:
            raise site.refuse("window", "the rows and columns of a tile are the tensor's last two axes")
        if window.buffer.space == "shared":
            raise site.refuse("window", "accumulators go to shared memory by `stmatrix`")
        if width not in (1, 2):
            raise site.refuse("vector", "a thread holds 2 neighbouring columns: vector is 1 or 2")
        if width == 2 and window.buffer.shape[-1] % 2:
            message = f"rows of `{window.buffer.name}` hold {window.buffer.shape[-1]} elements, an odd number"
            raise site.refuse("vector", message, help="vector=1, or add `require(N % 2 == 0)`")

    def _check_rows(self, site: Site, window: RegionType, width: int) -> None:
        """One row a thread, `width` columns at once; in a global tensor what sticks out is left."""
        if window.window[-2:] != window.shape:
            raise site.refuse("window", "the rows and columns of a tile are the tensor's last two axes")
        size = width * window.dtype.bytes
        if size not in (4, 8, 16):
            message = f"one access moves 4, 8 or 16 bytes, not {width} x {window.dtype.bytes}"
            raise site.refuse("vector", message)
        pitch = window.buffer.shape[-1]
        if window.shape[1] % width or pitch % width:
            message = f"rows of {window.shape[1]} elements at a pitch of {pitch} are not whole vectors"
            raise site.refuse("vector", message, help=f"add `require(... % {width} == 0)` or lower `vector`")

    def _parts(self, op: Op) -> list[tuple[Any, Region]]:
        """Windows that this warp writes, each with the index of its values in the warp's array."""
        region, value = op.region("window"), op.site.fragment("value")
        layout = value.layout
        if isinstance(layout, Vector):
            width = region.buffer.dtype.bytes
            parts = row_parts(op, layout, "window")
            return [((chunk, slice(0, part.bytes // width)), part) for chunk, part in parts]
        if isinstance(layout, RowsOf):
            rows, axis = layout.warp_shape(value.shape)[0], row_axis(region.size)
            start, size = [0] * len(region.size), list(region.size)
            start[axis], size[axis] = op.warp % layout.warps * rows, rows
            return [((), region.sub(tuple(start), tuple(size)))]
        if not isinstance(layout, Accumulator | TensorRows):
            return [((), region)]
        rows = layout.warp_shape(value.shape)[0]
        start, size = [0] * len(region.size), list(region.size)
        start[-2], size[-2] = op.warp % layout.warps * rows, rows
        return [((), region.sub(tuple(start), tuple(size)))]

    def effects(self, op: Op) -> Sequence[Effect]:
        region = op.region("window")
        buffer = region.buffer
        legal: list[Effect] = [Aligned(buffer, region.start, max(1, op.args["vector"]) * buffer.dtype.bytes)]
        layout = op.site.fragment("value").layout
        if buffer.space == "shared" or isinstance(layout, Replicated):
            legal.append(Inside(region))
        elif isinstance(layout, Vector):
            legal.append(Inside(clipped(region)))
        if buffer.space == "shared" and isinstance(layout, Vector):
            legal.append(Banked(buffer, row_traffic(op, layout)))
        return [*legal, *(Write(buffer, part.box) for _, part in self._parts(op))]

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        for index, part in self._parts(op):
            memory.write(part, op.args["value"].array[index])
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        region, kind = op.region("window"), op.site.fragment("value")
        width, size = max(1, op.args["vector"]), kind.dtype.bytes
        stores = -(-kind.registers // width)
        if region.buffer.space == "shared":
            turns = row_traffic(op, kind.layout).wavefronts if isinstance(kind.layout, Vector) else stores
            return Use(2 * stores, {"lsu": stores, "shared": turns * 128 / parameters("shared.bytes")})
        moved = size * sum(prod(n for _, n in part.box) for _, part in self._parts(op))
        # A warp's store of an accumulator touches a sector in each of 8 rows, twice those of a whole line.
        sectors = 2 if isinstance(kind.layout, Accumulator) else 1
        return Use(2 * stores, {"lsu": stores * sectors}, l2_write=moved)

    def lower(self, op: Lowering, out: Writer) -> None:
        window: Window = op.args["window"]
        value: Registers = op.args["value"]
        shared, cache = window.buffer.space == "shared", CACHE[op.site.text("cache")]
        if shared:
            out.line("__syncwarp();")
        match value.type.layout:
            case Vector() as layout:
                _lower_row(out, window, value, layout, cache)
            case Accumulator() as layout:
                _lower_tile(
                    out, window, value, layout, 2 if op.site.operand("vector").constant == 2 else 1, cache
                )
            case TensorRows():
                _lower_rows(out, window, value, op.site.integer("vector"), cache)
            case RowsOf() as layout:
                _lower_each_row(out, window, value, layout, cache)
            case _:
                _lower_scalar(out, window, value, cache)
        if shared:
            out.line("__syncwarp();")

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
        Good(
            "16-bit elements one by one, and a number by one lane",
            """
@kernel(arch="sm_80")
def keep(x: Global[bf16, N], y: GlobalOut[bf16, N], z: GlobalOut[f32, M, M]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        store(y[:], v, vector=1)
        store(z[0, 0], warp_sum(cast(v, f32)))
""",
            dims={"N": 75, "M": 1},
            expect=lambda inputs: {"y": inputs["x"], "z": inputs["x"].astype(np.float32).sum().reshape(1, 1)},
            rtol=1e-5,
        ),
        Good(
            "an accumulator of 16-bit elements in a tensor of odd rows",
            """
@kernel(arch="sm_80")
def ones(y: GlobalOut[bf16, L, M, N]):
    grid(1)
    with role("tile", warps=1):
        acc = zeros(f32, 16, 16, layout="mma")
        store(y[0, 0:+16, 0:+16], cast(acc + 1.0, bf16), vector=1)
""",
            dims={"L": 1, "M": 13, "N": 11},
            expect=lambda inputs: {"y": np.ones((1, 13, 11))},
        ),
        Good(
            "past the caches, the last tile of a row cut",
            """
@kernel(arch="sm_80")
def copy(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    require(N % 2 == 0)
    grid(M)
    with role("row", warps=1):
        for c in range(0, N, 64):
            store(y[block, c:+64], load(x[block, c:+64], vector=2, fill=0.0), vector=2, cache="streaming")
""",
            dims={"M": 2, "N": 150},
            expect=lambda inputs: {"y": inputs["x"]},
        ),
        Bad(
            "a hint that is none",
            """
@kernel(arch="sm_80")
def copy(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1, cache="last_use")  #! type/operand
""",
            dims={"N": 32},
        ),
        Bad(
            "an accumulator into shared memory",
            """
@kernel(arch="sm_80")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 16, 8]
    with role("tile", warps=1):
        store(s[:, :], zeros(f32, 16, 8, layout="mma"))  #! type/operand
""",
            dims={"N": 1},
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


def _lower_row(out: Writer, window: Window, value: Registers, layout: Vector, cache: str) -> None:
    dtype, width = value.type.dtype, layout.width
    length = value.type.shape[0]
    kind, registers = ACCESS[width * dtype.bytes]
    index = ["0"] * len(window.size)
    index[row_axis(window.size)] = "at_"
    tests = [f"at_ < {length}"] if layout.phantoms(value.type.shape) else []
    if window.buffer.space == "global" and (inside := beyond(out, window, "at_")) != "true":
        tests.append(inside)
    guard = f"if ({' && '.join(tests)}) " if tests else ""
    per = packing(dtype)
    if width % per:
        shift = f"{8 * dtype.bytes} * (c_ % {per})"
        whole = f"static_cast<{kind}>({value.name}[c_ / {per}] >> ({shift}))"
    else:
        fields = _fields(value, f"c_ * {registers}", registers)
        whole = joined(out, width * dtype.bytes, fields)
    with loop(out, "c_", layout.chunks(value.type.shape)):
        out.line(f"const int at_ = c_ * {layout.stride} + {out.thread} * {width};")
        out.line(f"{guard}{_store(out, window, index, width * dtype.bytes, whole, cache)}")


def _lower_rows(out: Writer, window: Window, value: Registers, width: int, cache: str) -> None:
    """Thread t of the warpgroup stores row t."""
    rows, columns = value.type.shape
    size = width * value.type.dtype.bytes
    registers = ACCESS[size][1]
    whole = joined(out, size, _fields(value, f"c_ * {registers}", registers))
    out.line("{")
    out.line(f"const int r_ = {out.warp} % {rows // LANES} * {LANES} + {out.lane};")
    with loop(out, "c_", columns // width):
        index = ["0"] * (len(window.size) - 2) + ["r_", f"c_ * {width}"]
        statement = _store(out, window, index, size, whole, cache)
        inside = out.in_bounds(window, index) if window.buffer.space == "global" else "true"
        out.line(statement if inside == "true" else f"if ({inside}) {statement}")
    out.line("}")


def _lower_each_row(out: Writer, window: Window, value: Registers, layout: RowsOf, cache: str) -> None:
    """Of the four lanes that hold a row's value, the first stores it."""
    size, four = value.type.dtype.bytes, not isinstance(layout.tile, TensorRows)
    out.line(f"if ({out.lane} % 4 == 0) {{" if four else "{")
    with loop(out, "i_", value.type.registers):
        out.line(f"const int r_ = {coordinate(value.type, 0, out)};")
        index = ["0"] * len(window.size)
        index[row_axis(window.size)] = "r_"
        if size == 2:
            whole = f"static_cast<unsigned short>({value.name}[i_ / 2] >> 16 * (i_ % 2))"
        else:
            whole = _fields(value, "i_", 1)[0]
        statement = _store(out, window, index, size, whole, cache)
        inside = out.in_bounds(window, index) if window.buffer.space == "global" else "true"
        out.line(statement if inside == "true" else f"if ({inside}) {statement}")
    out.line("}")


def _store(out: Writer, window: Window, index: list[str], size: int, whole: str, cache: str) -> str:
    """The statement that stores the `size` bytes `whole`."""
    if window.buffer.space == "shared":
        return f"{shared_store(out, size)}({out.shared_address(window, index)}, {whole});"
    kind, _ = ACCESS[size]
    address = f"{window.buffer.name} + {out.global_index(window, index)}"
    if cache or size > 16:
        return f"{global_store(out, size, cache)}({address}, {whole});"
    return f"*reinterpret_cast<{kind}*>({address}) = {whole};"


def _lower_scalar(out: Writer, window: Window, value: Registers, cache: str) -> None:
    size = value.type.dtype.bytes
    whole = _fields(value, "0", 1)[0]
    if size < 4:
        whole = f"static_cast<{ACCESS[size][0]}>({whole})"
    index = ["0"] * len(window.size)
    out.line(f"if ({out.lane} == 0) {_store(out, window, index, size, whole, cache)}")


def _lower_tile(
    out: Writer, window: Window, value: Registers, layout: Accumulator, width: int, cache: str
) -> None:
    """Neighbouring registers are two columns of a row; pairs alternate between a row and the one 8 below."""
    rows, columns = value.type.shape
    size, pairs = value.type.dtype.bytes, columns // 4
    base = f"{out.warp} % {layout.over} * {rows // layout.over} + " if layout.over > 1 else ""
    with loop(out, "i_", value.type.registers // 2):
        out.line(f"const int r_ = {base}i_ / {pairs} * 16 + i_ % 2 * 8 + {out.lane} / 4;")
        out.line(f"const int k_ = i_ % {pairs} / 2 * 8 + {out.lane} % 4 * 2;")
        for item in range(2 // width):
            index = ["0"] * (len(window.size) - 2) + ["r_", f"k_ + {item}" if item else "k_"]
            statement = _store(out, window, index, size * width, _pair(value, width, item), cache)
            inside = out.in_bounds(window, index)
            out.line(statement if inside == "true" else f"if ({inside}) {statement}")


def _pair(value: Registers, width: int, item: int) -> str:
    """Both columns of pair `i_` (`width` 2) or its column `item`."""
    if value.type.dtype.bytes == 2:
        whole = _fields(value, "i_", 1)[0]
        return whole if width == 2 else f"static_cast<unsigned short>({whole} >> {16 * item})"
    fields = _fields(value, "i_ * 2", 2)
    return f"make_uint2({fields[0]}, {fields[1]})" if width == 2 else fields[item]
