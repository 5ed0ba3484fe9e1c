"""cp_async: asynchronous copies of 4, 8 or 16 bytes from global to shared memory (sm_80)

Takes
    `cp_async(s[slot], a[row:+m, k:+n], bytes=16)`: the role's threads copy the window together, `bytes` at
    once; a window of one row may have one axis. What lies outside the tensor is filled with zeros, as is with
    `rows=i` and `columns=j` what lies in row `i` of the window or below, or in column `j` or right of it.
    `hint` is "evict_first" or "evict_last". Completion: `cp_async_commit` and `cp_async_wait`, or
    `cp_async_arrive`.
Touches
    Reads the window of the tensor, writes the shared window, both through the generic proxy.
Completes when
    `cp_async_wait` of each copying thread; other threads see the bytes after a rendezvous that follows it. Or
    with the phase of an mbarrier that `cp_async_arrive` names.
Source
    PTX ISA, "cp.async", "createpolicy".
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
from cake.machine.effects import Aligned, Async, Effect, Read, Region, Write
from cake_plugins.primitives._policy import check_hint, hint_parameter, policy

WIDTHS = (4, 8, 16)
"""Bytes of one copy."""
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


def extents(window: RegionType) -> tuple[int, int]:
    """Rows and columns; a window of one axis is one row."""
    return (1, *window.shape) if len(window.shape) == 1 else window.shape  # type: ignore[return-value]


class CpAsync(Primitive):
    """The copy itself."""

    names = ("cp_async",)
    parameters = (
        parameter("destination", "shared"),
        parameter("source", "global"),
        parameter("bytes", "int", default=16),
        parameter("rows", "int", default=-1),
        parameter("columns", "int", default=-1),
        hint_parameter(),
    )
    uses = ("global.latency", "shared.bytes")

    def signature(self, site: Site) -> Type | None:
        destination, source = site.region("destination"), site.region("source")
        if destination.dtype is not source.dtype:
            raise site.refuse("source", f"copies {source.dtype.value} into {destination.dtype.value}")
        if destination.shape != source.shape or len(source.shape) not in (1, 2):
            message = f"copies a {list(source.shape)} window into a {list(destination.shape)} one"
            raise site.refuse("source", message, help="both are rows x columns of the same size, or one row")
        if site.integer("bytes") not in WIDTHS:
            raise site.refuse("bytes", f"one copy moves 4, 8 or 16 bytes, not {site.integer('bytes')}")
        check_hint(site)
        for name, window in (("destination", destination), ("source", source)):
            self._check(site, name, window, site.integer("bytes"))
        return None

    def _check(self, site: Site, name: str, window: RegionType, chunk: int) -> None:
        axes = len(window.shape)
        if window.window[-axes:] != window.shape:
            raise site.refuse(name, "rows and columns are the last two axes")
        size = window.dtype.bytes
        shape = window.buffer.shape
        row, pitch = window.shape[-1] * size, shape[-1] * size
        if row % chunk:
            raise site.refuse(name, f"rows of {row} bytes are not whole chunks of {chunk}")
        if pitch % chunk and prod(shape[:-1]) > 1:
            message = f"the row stride of `{window.buffer.name}` is {pitch} bytes, not a multiple of {chunk}"
            help = f"add `require(... % {chunk // size} == 0)` for its last axis"
            raise site.refuse(name, message, help=help if chunk == 4 else f"{help}, or copy fewer `bytes`")

    def _parts(self, op: Op) -> tuple[tuple[Part, ...], int]:
        kind = op.site.region("source")
        per = op.site.integer("bytes") // kind.dtype.bytes
        rows, columns = extents(kind)
        return parts(rows, columns // per, op.site.scope.warps, op.warp), per

    def _windows(self, op: Op, name: str, *, read: bool = False) -> list[Region]:
        """This warp's part of the window; of what is to be read, without the rows and columns left out."""
        region, axes = op.region(name), len(op.site.region(name).shape)
        lead, ones = (0,) * (len(region.size) - axes), (1,) * (len(region.size) - axes)
        dealt, per = self._parts(op)
        most = [op.args[n] if read and op.site.has(n) else None for n in ("rows", "columns")]
        found = []
        for row, rows, chunk, chunks in dealt:
            start, size = (row, chunk * per), (rows, chunks * per)
            size = tuple(  # type: ignore[assignment]
                n if limit is None else min(n, max(0, limit - at))
                for at, n, limit in zip(start, size, most, strict=True)
            )
            if axes == 1 and not size[0]:
                size = (0, 0)
            found.append(region.sub((*lead, *start[-axes:]), (*ones, *size[-axes:])))
        return found

    def effects(self, op: Op) -> Sequence[Effect]:
        source, destination = op.region("source"), op.region("destination")
        reads = tuple(Read(source.buffer, w.box) for w in self._windows(op, "source", read=True))
        writes = tuple(Write(destination.buffer, w.box) for w in self._windows(op, "destination"))
        chunk = op.site.integer("bytes")
        return (
            Aligned(source.buffer, source.start, chunk),
            Aligned(destination.buffer, destination.start, chunk),
            Async(reads, writes, proxy="generic", group="cp_async"),
        )

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        sources, destinations = self._windows(op, "source", read=True), self._windows(op, "destination")
        for source, destination in zip(sources, destinations, strict=True):
            data = np.zeros(destination.size[-2:], destination.buffer.dtype.numpy)
            found = memory.read(source).reshape(source.size[-2:])
            data[tuple(slice(0, n) for n in found.shape)] = found
            memory.write(destination, data)
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        dealt, _ = self._parts(op)
        chunks = sum(rows * count for _, rows, _, count in dealt)
        copies = -(-chunks // LANES)
        moved = chunks * op.site.integer("bytes")
        units = {"lsu": copies, "shared": moved / parameters("shared.bytes")}
        size = op.site.region("source").dtype.bytes
        windows = self._windows(op, "source", read=True)
        asked = size * sum(prod(n for _, n in window.box) for window in windows)
        return Use(3 * copies, units, parameters("global.latency"), l2_read=asked, asynchronous=True)

    def lower(self, op: Lowering, out: Writer) -> None:
        source: Window = op.args["source"]
        destination: Window = op.args["destination"]
        rows, columns = extents(op.site.region("source"))
        axes, chunk = len(source.shape), op.site.integer("bytes")
        per = chunk // source.buffer.dtype.bytes
        row_chunks, threads = columns // per, op.site.scope.warps * LANES
        total = rows * row_chunks
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
            index = [row, "k_"][-axes:]
            from_index = [*["0"] * (len(source.size) - axes), *index]
            to_index = [*["0"] * (len(destination.size) - axes), *index]
            to = out.shared_address(destination, to_index)
            self._copy(op, out, from_index, to, row)
            if total % threads:
                out.line("}")

    def _copy(self, op: Lowering, out: Writer, index: list[str], to: str, row: str) -> None:
        """One copy of one thread. What lies outside is not read; its address is kept inside even so."""
        source: Window = op.args["source"]
        chunk, size = op.site.integer("bytes"), source.buffer.dtype.bytes
        cut = [f"{op.args['columns']} - k_"] if op.site.has("columns") else []
        tests = [out.in_bounds(source, index)]
        if op.site.has("rows"):
            tests.append(f"{row} < {op.args['rows']}")
        if cut:
            tests.append(f"{cut[0]} > 0")
        if source.buffer.shape[-1] * size % chunk:
            cut.append(f"{source.buffer.shape[-1]} - ({source.origin[-1]}) - k_")
        inside = " && ".join(test for test in tests if test != "true") or "true"
        name, at = source.buffer.name, out.global_index(source, index)
        hint = policy(op.site, out)
        last = f", {hint}" if hint else ""
        copy = _helper(out, chunk, bool(hint))
        count = str(chunk)
        for left in cut:
            count = f"min({count}, static_cast<int>({left}) * {size})"
        if inside == "true":
            out.line(f"{copy}({to}, {name} + {at}, {count}{last});")
            return
        out.line(f"const bool inside_ = {inside};")
        out.line(f"const auto* from_ = {name} + (inside_ ? {at} : 0);")
        out.line(f"{copy}({to}, from_, inside_ ? {count} : 0{last});")

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
        Good(
            "rows off 16 bytes, in copies of 4",
            """
@kernel(arch="sm_80")
def stage(x: Global[f16, M, N], y: GlobalOut[f16, K]):
    require(N % 2 == 0)
    grid(1)
    s = Shared[f16, 4, 16]
    with role("all", warps=1):
        cp_async(s[:, :], x[1:+4, 0:+16], bytes=4, hint="evict_first")
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        store(y[:], load(s[1, :], vector=1, fill=0.0), vector=1)
""",
            dims={"M": 3, "N": 10, "K": 16},
            expect=lambda i: {"y": np.concatenate([i["x"][2], np.zeros(6)])},
        ),
        Good(
            "a part of the window, the rest zeros",
            """
@kernel(arch="sm_80")
def stage(x: Global[f32, M, N], y: GlobalOut[f32, 3, N]):
    require(N == 16)
    grid(1)
    s = Shared[f32, 4, 16]
    with role("all", warps=2):
        cp_async(s[:, :], x[1:+4, :], rows=block + 2, columns=block + 5)
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        for i in range(3):
            store(y[i, :], load(s[i, :], vector=1, fill=0.0), vector=1)
""",
            dims={"M": 9, "N": 16},
            expect=lambda i: {
                "y": np.pad(i["x"][1:3, :5], ((0, 1), (0, 11))),
            },
        ),
        Good(
            "a row whose last chunk is cut",
            """
@kernel(arch="sm_80")
def stage(x: Global[bf16, N], y: GlobalOut[bf16, M]):
    grid(1)
    s = Shared[bf16, 32]
    with role("all", warps=1):
        cp_async(s[:], x[0:+32], bytes=8, hint="evict_last")
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        store(y[:], load(s[:], vector=1, fill=0.0), vector=1)
""",
            dims={"N": 21, "M": 32},
            expect=lambda i: {"y": np.concatenate([i["x"], np.zeros(11)])},
        ),
        Bad(
            "two bytes at once",
            """
@kernel(arch="sm_80")
def stage(x: Global[bf16, M, N]):
    grid(1)
    s = Shared[bf16, 2, 16]
    with role("all", warps=1):
        cp_async(s[:, :], x[0:+2, 0:+16], bytes=2)  #! type/operand
""",
            dims={"M": 2, "N": 16},
        ),
        Bad(
            "a hint that is none",
            """
@kernel(arch="sm_80")
def stage(x: Global[bf16, M, N]):
    grid(1)
    s = Shared[bf16, 2, 16]
    with role("all", warps=1):
        cp_async(s[:, :], x[0:+2, 0:+16], hint="evict_half")  #! type/operand
""",
            dims={"M": 2, "N": 16},
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


def _helper(out: Writer, chunk: int, hinted: bool) -> str:
    """Name of a device function that copies the first `count` bytes of a chunk, and zeros behind them."""
    # Only 16 bytes pass by the L1 cache.
    level = "cg" if chunk == 16 else "ca"
    name = f"cake_cp_async_{chunk}{'_hinted' if hinted else ''}"
    hint, taken = (".L2::cache_hint", ", unsigned long long hint") if hinted else ("", "")
    slots, given = (", %3", ', "l"(hint)') if hinted else ("", "")
    return out.helper(
        name,
        f"__device__ __forceinline__ void {name}(unsigned to, const void* from, int count{taken}) {{\n"
        f'    asm volatile("cp.async.{level}.shared.global{hint} [%0], [%1], {chunk}, %2{slots};"\n'
        f'        :: "r"(to), "l"(from), "r"(count){given} : "memory");\n}}',
    )
