"""cp_async: asynchronous 16-byte copies from global to shared memory (sm_80)

Takes
    `cp_async(s[slot], a[row:+m, k:+n])`: the role's threads copy the window together, 16 bytes at once; what
    lies outside the tensor is filled with zeros (no chunk is partly outside: rows and starts are whole
    chunks). `cp_async_commit()` closes a group, `cp_async_wait(n)` blocks until at most `n` groups of the
    calling thread are in flight.
Touches
    Reads the window of the tensor, writes the shared window, both through the generic proxy.
Completes when
    `cp_async_wait` of each copying thread; other threads see the bytes after a rendezvous that follows it.
Source
    PTX ISA, "cp.async", "cp.async.commit_group", "cp.async.wait_group".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from cake.codegen.pieces import loop
from cake.ir.layouts import LANES
from cake.ir.types import RegionType, Type
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
from cake.machine.effects import Aligned, Async, Commit, Effect, Read, WaitGroup, Write

CHUNK = 16
Part = tuple[int, int, int, int]


@lru_cache(maxsize=4096)
def parts(rows: int, row_chunks: int, warps: int, warp: int) -> tuple[Part, ...]:
    """What warp `warp` copies of `rows` x `row_chunks` chunks dealt out to threads in turn: rectangles
    (first row, rows, first chunk, chunks)."""
    out: list[Part] = []
    for first in range(warp * LANES, rows * row_chunks, warps * LANES):
        at, end = first, min(first + LANES, rows * row_chunks)
        while at < end:
            row, chunk = divmod(at, row_chunks)
            whole = (end - at) // row_chunks
            if chunk == 0 and whole:
                out.append((row, whole, 0, row_chunks))
                at += whole * row_chunks
            else:
                count = min(row_chunks - chunk, end - at)
                out.append((row, 1, chunk, count))
                at += count
    return tuple(out)


class CpAsync(Primitive):
    """The copy itself."""

    names = ("cp_async",)
    parameters = (parameter("destination", "shared"), parameter("source", "global"))
    uses = ("global.latency", "shared.bytes")

    def signature(self, site: Site) -> Type | None:
        destination, source = site.region("destination"), site.region("source")
        if destination.dtype is not source.dtype:
            raise site.refuse("source", f"copies {source.dtype.value} into {destination.dtype.value}")
        if destination.shape != source.shape or len(source.shape) != 2:
            message = f"copies a {list(source.shape)} window into a {list(destination.shape)} one"
            raise site.refuse("source", message, help="both are rows x columns of the same size")
        for name, window in (("destination", destination), ("source", source)):
            self._check(site, name, window)
        return None

    def _check(self, site: Site, name: str, window: RegionType) -> None:
        if window.window[-2:] != window.shape:
            raise site.refuse(name, "rows and columns are the last two axes")
        size = window.dtype.bytes
        pitch = window.buffer.shape[-1] * size
        if window.shape[1] * size % CHUNK:
            raise site.refuse(name, f"rows of {window.shape[1] * size} bytes are not whole chunks of {CHUNK}")
        if pitch % CHUNK:
            message = f"the row stride of `{window.buffer.name}` is {pitch} bytes, not a multiple of {CHUNK}"
            raise site.refuse(
                name, message, help=f"add `require(... % {CHUNK // size} == 0)` for its last axis"
            )

    def _parts(self, op: Op) -> tuple[tuple[Part, ...], int]:
        kind = op.site.region("source")
        per = CHUNK // kind.dtype.bytes
        return parts(kind.shape[0], kind.shape[1] // per, op.site.scope.warps, op.warp), per

    def _windows(self, op: Op, name: str) -> list[Any]:
        region = op.region(name)
        dealt, per = self._parts(op)
        lead = (0,) * (len(region.size) - 2)
        ones = (1,) * (len(region.size) - 2)
        return [
            region.sub((*lead, row, chunk * per), (*ones, rows, chunks * per))
            for row, rows, chunk, chunks in dealt
        ]

    def effects(self, op: Op) -> Sequence[Effect]:
        source, destination = op.region("source"), op.region("destination")
        reads = tuple(Read(source.buffer, w.box) for w in self._windows(op, "source"))
        writes = tuple(Write(destination.buffer, w.box) for w in self._windows(op, "destination"))
        return (
            Aligned(source.buffer, source.start, CHUNK),
            Aligned(destination.buffer, destination.start, CHUNK),
            Async(reads, writes, proxy="generic", group="cp_async"),
        )

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        sources, destinations = self._windows(op, "source"), self._windows(op, "destination")
        for source, destination in zip(sources, destinations, strict=True):
            memory.write(destination, memory.read(source))
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        dealt, _ = self._parts(op)
        chunks = sum(rows * count for _, rows, _, count in dealt)
        copies = -(-chunks // LANES)
        moved = chunks * CHUNK
        units = {"lsu": copies, "shared": moved / parameters("shared.bytes")}
        size = op.site.region("source").dtype.bytes
        asked = size * sum(prod(n for _, n in window.box) for window in self._windows(op, "source"))
        return Use(3 * copies, units, parameters("global.latency"), l2_read=asked, asynchronous=True)

    def lower(self, op: Lowering, out: Writer) -> None:
        source: Window = op.args["source"]
        destination: Window = op.args["destination"]
        rows, columns = source.shape
        per = CHUNK // source.buffer.dtype.bytes
        row_chunks, threads = columns // per, op.site.scope.warps * LANES
        total = rows * row_chunks
        copy = out.helper(
            "cake_cp_async",
            "__device__ __forceinline__ void cake_cp_async(unsigned to, const void* from, bool inside) {\n"
            '    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"\n'
            '        :: "r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");\n}',
        )
        with loop(out, "i_", -(-total // threads)):
            row = "r_"
            if threads % row_chunks == 0:
                # Each turn copies whole rows: a thread keeps its column, and its row advances by a literal.
                row = f"i_ * {threads // row_chunks} + r_"
                out.line(f"const int r_ = {out.thread} / {row_chunks};")
                out.line(f"const int k_ = {out.thread} % {row_chunks} * {per};")
                guard = f"{row} < {rows}"
            else:
                out.line(f"const int q_ = i_ * {threads} + {out.thread};")
                out.line(f"const int r_ = q_ / {row_chunks}, k_ = q_ % {row_chunks} * {per};")
                guard = f"q_ < {total}"
            if total % threads:
                out.line(f"if ({guard}) {{")
            lead = ["0"] * (len(source.size) - 2)
            into = ["0"] * (len(destination.size) - 2)
            inside = out.in_bounds(source, [*lead, row, "k_"])
            at = out.global_index(source, [*lead, row, "k_"])
            name = source.buffer.name
            to = out.shared_address(destination, [*into, row, "k_"])
            if inside == "true":
                out.line(f"{copy}({to}, {name} + {at}, true);")
            else:
                # A chunk outside reads nothing; its address is kept inside the tensor all the same.
                out.line(f"const bool inside_ = {inside};")
                out.line(f"const auto* from_ = {name} + (inside_ ? {at} : 0);")
                out.line(f"{copy}({to}, from_, inside_);")
            if total % threads:
                out.line("}")

    cases = (
        Good(
            "a tile through shared memory",
            """
@kernel(arch="sm_80")
def stage(x: Global[f32, M, N], y: GlobalOut[f32, N]):
    require(N % 4 == 0)
    grid(1)
    s = Shared[f32, 2, 16]
    with role("all", warps=1):
        cp_async(s[:, :], x[0:+2, 0:+16])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        store(y[:], load(s[1, :], vector=1, fill=0.0), vector=1)
""",
            dims={"M": 2, "N": 16},
            expect=lambda i: {"y": i["x"][1]},
        ),
        Good(
            "beyond the edge: zeros",
            """
@kernel(arch="sm_80")
def stage(x: Global[bf16, M, N], y: GlobalOut[bf16, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 4, 16](swizzle=32)
    with role("all", warps=2):
        cp_async(s[:, :], x[0:+4, 0:+16])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        store(y[:], load(s[3, 0:+8], vector=1, fill=0.0), vector=1)
""",
            dims={"M": 2, "N": 8},
            expect=lambda i: {"y": np.zeros(8)},
        ),
        Bad(
            "a row stride off 16 bytes",
            """
@kernel(arch="sm_80")
def stage(x: Global[bf16, M, N]):
    grid(1)
    s = Shared[bf16, 2, 16]
    with role("all", warps=1):
        cp_async(s[:, :], x[0:+2, 0:+16])  #! type/operand
        cp_async_commit()
        cp_async_wait(0)
""",
            dims={"M": 2, "N": 17},
        ),
    )


class CpAsyncCommit(Primitive):
    """Closes the current group."""

    names = ("cp_async_commit",)
    parameters = ()

    def signature(self, site: Site) -> Type | None:
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (Commit("cp_async"),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm("cp.async.commit_group;")

    cases = (
        Good(
            "an empty group",
            """
@kernel(arch="sm_80")
def nothing(y: GlobalOut[f32, N]):
    grid(1)
    with role("all", warps=1):
        cp_async_commit()
        cp_async_wait(0)
""",
            dims={"N": 1},
        ),
        Bad(
            "with an operand",
            """
@kernel(arch="sm_80")
def nothing(y: GlobalOut[f32, N]):
    grid(1)
    with role("all", warps=1):
        cp_async_commit(1)  #! type/arguments
""",
            dims={"N": 1},
        ),
    )


class CpAsyncWait(Primitive):
    """Blocks until at most `pending` groups are in flight."""

    names = ("cp_async_wait",)
    parameters = (parameter("pending", "int"),)

    def signature(self, site: Site) -> Type | None:
        if site.integer("pending") < 0:
            raise site.refuse("pending", f"{site.integer('pending')} groups cannot be in flight")
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (WaitGroup("cp_async", op.args["pending"]),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm(f"cp.async.wait_group {op.site.integer('pending')};")

    cases = (
        Good(
            "one group stays in flight",
            """
@kernel(arch="sm_80")
def nothing(y: GlobalOut[f32, N]):
    grid(1)
    with role("all", warps=1):
        cp_async_commit()
        cp_async_commit()
        cp_async_wait(1)
        cp_async_wait(0)
""",
            dims={"N": 1},
        ),
        Bad(
            "a negative depth",
            """
@kernel(arch="sm_80")
def nothing(y: GlobalOut[f32, N]):
    grid(1)
    with role("all", warps=1):
        cp_async_wait(-1)  #! type/operand
""",
            dims={"N": 1},
        ),
    )
