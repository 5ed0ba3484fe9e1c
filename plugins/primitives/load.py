"""load: ordinary loads from global or shared memory into a fragment

Takes
    `load(x[row, :], vector=w, fill=f, cache="")` a row of global memory, spread over the role's threads, `w`
    elements at once; `load(s[:])` up to 256 elements of shared memory, replicated in every lane.
Touches
    Reads the window, each element once (rows) or once a warp (replicated), through the generic proxy.
    Elements past the end of the row are phantoms and hold `fill`.
Completes when
    The next instruction that uses the fragment starts: loads are synchronous to the warp.
Source
    PTX ISA, "Data Movement and Conversion Instructions: ld", "Cache Operators".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.codegen.pieces import ACCESS, bits, loop, packing, shared_load
from cake.ir.layouts import LANES, REPLICATED, Vector
from cake.ir.types import FragmentType, RegionType, Type
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
from cake.machine.effects import Aligned, Box, Effect, Inside, Read

CACHE = {"": "", "streaming": ".cs", "last_use": ".lu"}


def spread(layout: Vector, length: int, rank: int) -> list[tuple[int, int]]:
    """Intervals (start, size) of the row that warp `rank` holds, one a chunk, clipped to `length`."""
    width = LANES * layout.width
    out = []
    for chunk in range(layout.chunks((length,))):
        start = chunk * layout.stride + rank * width
        if start < length:
            out.append((start, min(width, length - start)))
    return out


def row_boxes(op: Op, layout: Vector, name: str) -> list[Box]:
    """The boxes of the one-dimensional window `name` that this warp touches."""
    region = op.region(name)
    axis = (
        next(i for i, n in enumerate(region.size) if n > 1) if max(region.size) > 1 else len(region.size) - 1
    )
    length = region.size[axis]
    boxes = []
    for start, size in spread(layout, length, op.warp):
        box = list(region.box)
        box[axis] = (region.start[axis] + start, size)
        boxes.append(tuple(box))
    return boxes


def check_vector(site: Site, name: str, window: RegionType, width: int) -> None:
    """Refuse a row access of `width` elements that the alignment facts do not allow."""
    size = width * window.dtype.bytes
    if size not in ACCESS:
        raise site.refuse(
            "vector", f"one access moves 1, 2, 4, 8 or 16 bytes, not {width} x {window.dtype.bytes}"
        )
    length = window.shape[0]
    pitch = window.buffer.shape[-1]
    if length % width or pitch % width:
        message = f"rows of {length} elements (pitch {pitch * window.dtype.bytes} bytes) are not whole vectors of {width}"
        raise site.refuse("vector", message, help=f"add `require(... % {width} == 0)` or lower `vector`")


class Load(Primitive):
    """Rows of global memory as vectors; little shared buffers replicated."""

    names = ("load",)
    collective = True
    parameters = (
        parameter("window", "global", "shared"),
        parameter("vector", "int", default=0),
        parameter("fill", "float", default=0.0),
        parameter("cache", "text", default=""),
    )
    uses = ("global.latency", "shared.latency", "shared.bytes")

    def signature(self, site: Site) -> Type | None:
        window = site.region("window")
        if site.text("cache") not in CACHE:
            raise site.refuse("cache", f"`cache` is one of {', '.join(repr(c) for c in CACHE)}")
        if window.buffer.space == "shared" and not site.has("vector"):
            if len(window.shape) > 1:
                raise site.refuse("window", "a replicated load takes at most one axis; index the others")
            return FragmentType(window.dtype, window.shape, REPLICATED)
        if len(window.shape) != 1:
            raise site.refuse(
                "window", f"a row load takes a window of one axis, this one has {len(window.shape)}"
            )
        width = site.integer("vector") if site.has("vector") else 1
        check_vector(site, "window", window, width)
        layout = Vector(width, site.scope.warps)
        if layout.phantoms(window.shape) and not site.has("fill"):
            message = f"{layout.phantoms(window.shape)} phantom elements behind the row need a `fill`"
            raise site.refuse(
                "window", message, code="type/phantom-fill", help="the identity of the reduction that follows"
            )
        return FragmentType(window.dtype, window.shape, layout)

    def effects(self, op: Op) -> Sequence[Effect]:
        region = op.region("window")
        layout = op.result.layout
        if isinstance(layout, Vector):
            size = layout.width * region.buffer.dtype.bytes
            legal = (Inside(region), Aligned(region.buffer, region.start, size))
            return [*legal, *(Read(region.buffer, box) for box in row_boxes(op, layout, "window"))]
        return (Read(region.buffer, region.box),)

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        region, kind = op.region("window"), op.result
        layout = kind.layout
        data = memory.read(region).reshape(kind.shape)
        if not isinstance(layout, Vector):
            return data.copy()
        padded = np.full(layout.chunks(kind.shape) * layout.stride, op.args["fill"], data.dtype)
        padded[: data.size] = data
        width = LANES * layout.width
        return padded.reshape(-1, layout.over, width)[:, op.warp]

    def time(self, op: Op, parameters: Parameters) -> Use:
        kind = op.result
        layout = kind.layout
        region = op.region("window")
        if region.buffer.space == "shared":
            count = 1 if not isinstance(layout, Vector) else layout.chunks(kind.shape)
            moved = 128 * count
            units = {"lsu": count, "shared": moved / parameters("shared.bytes")}
            return Use(count, units, parameters("shared.latency"))
        assert isinstance(layout, Vector)
        chunks = layout.chunks(kind.shape)
        moved = sum(size for _, size in spread(layout, kind.shape[0], op.warp)) * kind.dtype.bytes
        return Use(2 * chunks, {"lsu": chunks}, parameters("global.latency"), l2_read=moved)

    def lower(self, op: Lowering, out: Writer) -> None:
        assert op.result is not None
        window: Window = op.args["window"]
        layout = op.result.type.layout
        if isinstance(layout, Vector):
            _lower_row(op, out, window, layout, op.result)
        else:
            _lower_replicated(out, window, op.result)

    cases = (
        Good(
            "a row with phantoms",
            """
@kernel(arch="sm_80")
def copy(x: Global[bf16, N], y: GlobalOut[bf16, N]):
    grid(1)
    with role("row", warps=2):
        store(y[:], load(x[:], vector=4, fill=0.0), vector=4)
""",
            dims={"N": 700},
            expect=lambda inputs: {"y": inputs["x"]},
        ),
        Good(
            "replicated from shared memory",
            """
@kernel(arch="sm_80")
def spread(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 4]
    with role("row", warps=4):
        v = load(x[:], vector=1, fill=0.0)
        store(s[warp], warp_sum(v))
        cta_sync()
        store(y[:], v * reduce_sum(load(s[:])), vector=1)
""",
            dims={"N": 128},
            expect=lambda inputs: {"y": inputs["x"] * inputs["x"].sum(dtype=np.float32)},
            rtol=1e-5,
        ),
        Bad(
            "phantoms without a fill",
            """
@kernel(arch="sm_80")
def copy(x: Global[bf16, N], y: GlobalOut[bf16, N]):
    grid(1)
    with role("row", warps=2):
        v = load(x[:], vector=4)  #! type/phantom-fill
        store(y[:], v, vector=4)
""",
            dims={"N": 700},
        ),
        Bad(
            "rows that are no whole vectors",
            """
@kernel(arch="sm_80")
def copy(x: Global[bf16, N], y: GlobalOut[bf16, N]):
    grid(1)
    with role("row", warps=2):
        v = load(x[:], vector=8, fill=0.0)  #! type/operand
""",
            dims={"N": 700},
        ),
    )


def _lower_row(op: Lowering, out: Writer, window: Window, layout: Vector, result: Registers) -> None:
    dtype = result.type.dtype
    width, length = layout.width, result.type.shape[0]
    kind, registers = ACCESS[width * dtype.bytes]
    axis = window.size.index(length) if length in window.size else len(window.size) - 1
    name = window.buffer.name
    with loop(out, "c", layout.chunks(result.type.shape)):
        out.line(f"const int col = c * {layout.stride} + {out.thread} * {width};")
        index = ["0"] * len(window.size)
        index[axis] = "col"
        partial = layout.phantoms(result.type.shape) > 0
        out.line(f"if (col < {length}) {{" if partial else "{")
        address = f"{name} + {out.global_index(window, index)}"
        operator = CACHE[op.site.text("cache")]
        if window.buffer.space == "shared":
            out.line(
                f"const {kind} v = {shared_load(out, width * dtype.bytes)}({out.shared_address(window, index)});"
            )
        elif operator:
            reader = "__ldcs" if operator == ".cs" else "__ldlu"
            out.line(f"const {kind} v = {reader}(reinterpret_cast<const {kind}*>({address}));")
        else:
            out.line(f"const {kind} v = *reinterpret_cast<const {kind}*>({address});")
        _unpack(out, result, kind, registers, width)
        out.line("}" + (" else {" if partial else ""))
        if partial:
            _fill(out, result, width, bits(dtype, float(op.site.operand("fill").constant or 0.0)))
            out.line("}")


def _unpack(out: Writer, result: Registers, kind: str, registers: int, width: int) -> None:
    per = packing(result.type.dtype)
    if width % per:
        # Vectors narrower than a register: two chunks share one.
        out.line(f"if (c % {per} == 0) {result.name}[c / {per}] = v;")
        shift = 8 * result.type.dtype.bytes
        out.line(f"else {result.name}[c / {per}] |= static_cast<unsigned>(v) << ({shift} * (c % {per}));")
        return
    fields = ("v",) if registers == 1 else tuple(f"v.{f}" for f in "xyzw"[:registers])
    for i, field in enumerate(fields):
        out.line(f"{result.name}[c * {registers} + {i}] = {_as(result, field)};")


def _as(result: Registers, field: str) -> str:
    if result.ctype == "float":
        return f"__uint_as_float({field})"
    return f"static_cast<int>({field})" if result.ctype == "int" else field


def _fill(out: Writer, result: Registers, width: int, pattern: int) -> None:
    dtype = result.type.dtype
    per = packing(dtype)
    if width % per:
        out.line(f"if (c % {per} == 0) {result.name}[c / {per}] = {pattern}u;")
        out.line(f"else {result.name}[c / {per}] |= {pattern}u << ({8 * dtype.bytes} * (c % {per}));")
        return
    word = pattern
    for _ in range(per - 1):
        word = word << (8 * dtype.bytes) | pattern
    registers = width // per
    for i in range(registers):
        out.line(f"{result.name}[c * {registers} + {i}] = {_as(result, f'{word}u')};")


def _lower_replicated(out: Writer, window: Window, result: Registers) -> None:
    dtype = result.type.dtype
    index = ["0"] * len(window.size)
    shape = result.type.shape
    axis = next((i for i, n in enumerate(window.size) if n > 1), len(window.size) - 1)
    count = shape[0] if shape else 1
    per = packing(dtype)
    with loop(out, "i", count):
        index[axis] = "i"
        kind, _ = ACCESS[dtype.bytes]
        out.line(f"const {kind} v = {shared_load(out, dtype.bytes)}({out.shared_address(window, index)});")
        if per == 1:
            out.line(f"{result.name}[i] = {_as(result, 'v')};")
        else:
            shift = 8 * dtype.bytes
            out.line(f"if (i % {per} == 0) {result.name}[i / {per}] = v;")
            out.line(f"else {result.name}[i / {per}] |= static_cast<unsigned>(v) << ({shift} * (i % {per}));")
