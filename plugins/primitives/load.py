"""load: ordinary loads from global or shared memory into a fragment

Takes
    `load(x[row, c:+n], vector=w, fill=f, cache="")` a row of global memory, or with `vector` of shared
    memory, spread over the role's threads, `w` elements at once (up to 16 bytes; on sm_100 and later 32 of
    global memory); `load(s[:])` up to 256 elements of shared memory, or `load(w[i])` one element of global
    memory, replicated in every lane. `cache` is "streaming", "last_use" or "no_allocate" (not in L1).
Touches
    Reads the window, each element once (rows) or once a warp (replicated), through the generic proxy.
    Elements past the end of the row are phantoms and hold `fill`; so do, with a `fill`, those of a window
    that sticks out of the tensor along the row, whose extent is then whole vectors.
Completes when
    The next instruction that uses the fragment starts: loads are synchronous to the warp.
Source
    PTX ISA, "Data Movement and Conversion Instructions: ld", "Cache Operators".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import Any

import numpy as np

from cake.codegen.pieces import ACCESS, FIELDS, bits, global_load, loop, packing, shared_load
from cake.ir.layouts import REPLICATED, Vector
from cake.ir.types import DType, FragmentType, RegionType, Type
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
from cake.machine.effects import Aligned, Banked, Effect, Inside, Read
from cake_plugins.primitives._banks import row_traffic
from cake_plugins.primitives._rows import beyond, check_vector, clipped, row_axis, row_parts

CACHE = {"": "", "streaming": ".cs", "last_use": ".lu", "no_allocate": ".L1::no_allocate"}
"""Cache hint -> the qualifier of ld.global."""
INTRINSICS = {"": "*", ".cs": "__ldcs", ".lu": "__ldlu"}
"""Qualifier -> what loads so in C++, up to 16 bytes."""


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
        if not window.shape or (window.buffer.space == "shared" and not site.has("vector")):
            return self._replicated(site, window)
        if len(window.shape) != 1:
            message = f"a row load takes a window of one axis, this one has {len(window.shape)}"
            raise site.refuse("window", message, help="index the others, as in `x[block, :]`")
        if site.text("cache") not in CACHE or (site.has("cache") and window.buffer.space == "shared"):
            choices = ", ".join(repr(c) for c in CACHE)
            raise site.refuse("cache", f"`cache` is one of {choices}, for global memory")
        fill = site.operand("fill").constant
        if not isinstance(fill, int | float):
            raise site.refuse("fill", "`fill` must be a compile-time number")
        if not window.dtype.is_float and not (isfinite(fill) and _holds(window.dtype, fill)):
            raise site.refuse("fill", f"`fill` is a number of {window.dtype.value}, not {fill}")
        width = site.integer("vector") if site.has("vector") else 1
        check_vector(site, window, width, clips=site.has("fill"))
        layout = Vector(width, site.scope.warps)
        phantoms = layout.phantoms(window.shape)
        if phantoms and not site.has("fill"):
            message = f"{phantoms} phantom elements behind the row need a `fill`"
            help = "the neutral value of the reduction that follows: 0.0 of a sum, -inf of a maximum"
            raise site.refuse("window", message, code="type/phantom-fill", help=help)
        return FragmentType(window.dtype, window.shape, layout)

    def _replicated(self, site: Site, window: RegionType) -> FragmentType:
        if len(window.shape) > 1:
            raise site.refuse("window", "a replicated load takes at most one axis; index the others")
        if window.dtype.bytes == 1:
            raise site.refuse("window", f"{window.dtype.value} elements move four at once at least")
        for name in ("vector", "fill", "cache"):
            if site.has(name):
                raise site.refuse(name, f"`{name}` has no meaning where every lane loads every element")
        return FragmentType(window.dtype, window.shape, REPLICATED)

    def effects(self, op: Op) -> Sequence[Effect]:
        region, layout = op.region("window"), op.result.layout
        if isinstance(layout, Vector):
            size = layout.width * region.buffer.dtype.bytes
            inside = clipped(region) if _masked(op.site) else region
            legal: list[Effect] = [Inside(inside), Aligned(region.buffer, region.start, size)]
            if region.buffer.space == "shared":
                legal.append(Banked(region.buffer, row_traffic(op, layout)))
            return [*legal, *(Read(region.buffer, part.box) for _, part in row_parts(op, layout, "window"))]
        return (Inside(region), Read(region.buffer, region.box))

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        kind = op.result
        if not isinstance(kind.layout, Vector):
            return memory.read(op.region("window")).reshape(kind.shape).copy()
        out = np.full(kind.layout.warp_shape(kind.shape), op.args["fill"], kind.dtype.numpy)
        for chunk, part in row_parts(op, kind.layout, "window"):
            data = memory.read(part, op.args["fill"]).reshape(-1)
            out[chunk, : data.size] = data
        return out

    def time(self, op: Op, parameters: Parameters) -> Use:
        kind, layout = op.result, op.result.layout
        accesses = layout.chunks(kind.shape) if isinstance(layout, Vector) else kind.registers
        if op.region("window").buffer.space == "shared":
            # A word that all lanes want takes one turn.
            turns = row_traffic(op, layout).wavefronts if isinstance(layout, Vector) else accesses
            units = {"lsu": accesses, "shared": turns * 128 / parameters("shared.bytes")}
            return Use(accesses, units, parameters("shared.latency"))
        moved = 32 * accesses
        if isinstance(layout, Vector):
            size = kind.dtype.bytes
            count = sum(size * prod(n for _, n in part.box) for _, part in row_parts(op, layout, "window"))
            moved = count if op.region("window").size[-1] > 1 else 32 * count // kind.dtype.bytes
        # Address arithmetic and the load itself.
        return Use(2 * accesses, {"lsu": accesses}, parameters("global.latency"), l2_read=moved)

    def lower(self, op: Lowering, out: Writer) -> None:
        if op.args["window"].buffer.output:
            # Lanes read back what other lanes of the warp wrote.
            out.line("__syncwarp();")
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
        Good(
            "a column, an element for all lanes, and a row of shared memory",
            """
@kernel(arch="sm_80")
def scale(x: Global[f16, N, M], w: Global[f32, M], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 96]
    with role("row", warps=1):
        store(s[:], cast(load(x[:, 2], cache="streaming"), f32), vector=1)
        cta_sync()
        store(y[:], load(s[0:+N], vector=1) * load(w[1]), vector=1)
""",
            dims={"N": 96, "M": 5},
            expect=lambda inputs: {"y": inputs["x"][:, 2].astype(np.float32) * inputs["w"][1]},
        ),
        Good(
            "integers, loaded for the last time",
            """
@kernel(arch="sm_80")
def copy(x: Global[i32, M, N], y: GlobalOut[i32, N]):
    grid(1)
    with role("row", warps=1):
        store(y[:], load(x[1, :], vector=2, fill=-7, cache="last_use"), vector=2)
""",
            dims={"M": 3, "N": 70},
            expect=lambda inputs: {"y": inputs["x"][1]},
        ),
        Good(
            "tiles of a row, the last one cut",
            """
@kernel(arch="sm_80")
def copy(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    require(N % 4 == 0)
    grid(M)
    with role("row", warps=1):
        for c in range(0, N, 128):
            store(y[block, c:+128], load(x[block, c:+128], vector=4, fill=1.0, cache="no_allocate"), vector=4)
""",
            dims={"M": 2, "N": 300},
            expect=lambda inputs: {"y": inputs["x"]},
        ),
        Good(
            "the maximum of a row that ends within the tile",
            """
@kernel(arch="sm_80")
def greatest(x: Global[f32, N], y: GlobalOut[f32, M]):
    grid(1)
    with role("row", warps=1):
        best = load(x[0:+64], vector=1, fill=-inf)
        best = maximum(best, load(x[64:+64], vector=1, fill=-inf))
        store(y[0], warp_max(best))
""",
            dims={"N": 75, "M": 1},
            expect=lambda inputs: {"y": inputs["x"].max(keepdims=True)},
        ),
        Good(
            "32 bytes at once",
            """
@kernel(arch="sm_100a")
def copy(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    require(N % 8 == 0)
    grid(M)
    with role("row", warps=1):
        store(y[block, 0:+512], load(x[block, 0:+512], vector=8, fill=0.0), vector=8)
""",
            dims={"M": 3, "N": 344},
            expect=lambda inputs: {"y": inputs["x"]},
        ),
        Bad(
            "32 bytes before Blackwell",
            """
@kernel(arch="sm_90a")
def copy(x: Global[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=8, fill=0.0)  #! type/operand
""",
            dims={"N": 512},
        ),
        Bad(
            "a cut tile of rows that are no whole vectors",
            """
@kernel(arch="sm_80")
def copy(x: Global[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[0:+128], vector=4, fill=0.0)  #! type/operand
""",
            dims={"N": 126},
        ),
        Bad(
            "integers filled with what is none",
            """
@kernel(arch="sm_80")
def copy(x: Global[i32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=-inf)  #! type/operand
""",
            dims={"N": 40},
        ),
        Bad(
            "vectors across rows",
            """
@kernel(arch="sm_80")
def copy(x: Global[f32, N, M]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:, 0], vector=2)  #! type/operand
""",
            dims={"N": 64, "M": 2},
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


def _holds(dtype: DType, fill: float) -> bool:
    """Whether integers of `dtype` hold the number."""
    limits = np.iinfo(dtype.numpy)
    return fill == int(fill) and bool(limits.min <= fill <= limits.max)


def _masked(site: Site) -> bool:
    """Whether what sticks out of the tensor is filled."""
    return site.has("fill") and site.region("window").buffer.space == "global"


def _lower_row(op: Lowering, out: Writer, window: Window, layout: Vector, result: Registers) -> None:
    dtype = result.type.dtype
    width, length = layout.width, result.type.shape[0]
    kind, registers = ACCESS[width * dtype.bytes]
    index = ["0"] * len(window.size)
    index[row_axis(window.size)] = "at_"
    tests = [f"at_ < {length}"] if layout.phantoms(result.type.shape) > 0 else []
    if _masked(op.site) and (inside := beyond(out, window, "at_")) != "true":
        tests.append(inside)
    partial = bool(tests)
    with loop(out, "c_", layout.chunks(result.type.shape)):
        out.line(f"const int at_ = c_ * {layout.stride} + {out.thread} * {width};")
        out.line(f"if ({' && '.join(tests)}) {{" if partial else "{")
        if window.buffer.space == "shared":
            read = f"{shared_load(out, width * dtype.bytes)}({out.shared_address(window, index)})"
        else:
            place = f"{window.buffer.name} + {out.global_index(window, index)}"
            qualifier, size = CACHE[op.site.text("cache")], width * dtype.bytes
            if size <= 16 and qualifier in INTRINSICS:
                address = f"reinterpret_cast<const {kind}*>({place})"
                read = f"*{address}" if not qualifier else f"{INTRINSICS[qualifier]}({address})"
            else:
                read = f"{global_load(out, size, qualifier)}({place})"
        out.line(f"const {kind} v_ = {read};")
        _unpack(out, result, registers, width)
        out.line("} else {" if partial else "}")
        if partial:
            _fill(out, result, width, bits(dtype, float(op.site.operand("fill").constant or 0.0)))
            out.line("}")


def _unpack(out: Writer, result: Registers, registers: int, width: int) -> None:
    per = packing(result.type.dtype)
    if width % per:
        # Elements narrower than a register come one by one: neighbouring chunks share a register.
        place = f"{result.name}[c_ / {per}]"
        shift = f"{8 * result.type.dtype.bytes} * (c_ % {per})"
        out.line(f"if (c_ % {per} == 0) {place} = v_;")
        out.line(f"else {place} |= static_cast<unsigned>(v_) << ({shift});")
        return
    fields = ("v_",) if registers == 1 else tuple(f"v_.{f}" for f in FIELDS[:registers])
    for i, field in enumerate(fields):
        out.line(f"{result.name}[c_ * {registers} + {i}] = {_as(result, field)};")


def _as(result: Registers, field: str) -> str:
    if result.ctype == "float":
        return f"__uint_as_float({field})"
    return f"static_cast<int>({field})" if result.ctype == "int" else field


def _fill(out: Writer, result: Registers, width: int, pattern: int) -> None:
    dtype = result.type.dtype
    per = packing(dtype)
    if width % per:
        place = f"{result.name}[c_ / {per}]"
        out.line(f"if (c_ % {per} == 0) {place} = {pattern}u;")
        out.line(f"else {place} |= {pattern}u << ({8 * dtype.bytes} * (c_ % {per}));")
        return
    word = pattern
    for _ in range(per - 1):
        word = word << (8 * dtype.bytes) | pattern
    registers = width // per
    for i in range(registers):
        out.line(f"{result.name}[c_ * {registers} + {i}] = {_as(result, f'{word}u')};")


def _lower_replicated(out: Writer, window: Window, result: Registers) -> None:
    dtype = result.type.dtype
    kind, _ = ACCESS[dtype.bytes]
    index = ["0"] * len(window.size)
    count = result.type.registers
    if count > 1:
        index[row_axis(window.size)] = "i_"
    if window.buffer.space == "shared":
        read = f"{shared_load(out, dtype.bytes)}({out.shared_address(window, index)})"
    else:
        name = window.buffer.name
        read = f"*reinterpret_cast<const {kind}*>({name} + {out.global_index(window, index)})"
    per = packing(dtype)
    with loop(out, "i_", count):
        out.line(f"const {kind} v_ = {read};")
        if per == 1:
            out.line(f"{result.name}[i_] = {_as(result, 'v_')};")
        else:
            place, shift = f"{result.name}[i_ / {per}]", f"{8 * dtype.bytes} * (i_ % {per})"
            out.line(f"if (i_ % {per} == 0) {place} = v_;")
            out.line(f"else {place} |= static_cast<unsigned>(v_) << ({shift});")
