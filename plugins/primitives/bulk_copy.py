"""bulk_copy, bulk_reduce: contiguous pieces moved by the copy engine, without a tensor map (sm_90)

Takes
    By one thread: `bulk_copy(s[slot], x[row, :], bar)` from global to shared memory; `bulk_copy(y[row, :],
    s[slot])` back; `bulk_copy(remote(s[slot], r), s[slot], remote(bar, r))` to another CTA of the cluster.
    `bulk_reduce` takes the last two forms with an operation behind the windows, as `tma_reduce` does; in
    other CTAs it works on integers. Each window is one contiguous piece of a multiple of 16 bytes, at a
    multiple of 16, and lies inside its buffer. Towards global memory buffers have no swizzle, between CTAs
    the same.
Touches
    Reads the source, writes the destination, through the async proxy; a reduction changes each element
    atomically, in no order, and needs a value there.
Completes when
    Into shared memory: the bytes arrive on the mbarrier. Into global memory: the bulk group that the thread
    commits next.
Source
    PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk", "createpolicy".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.ir import nodes as n
from cake.ir.layouts.legality import CHUNK, contiguous
from cake.ir.types import BarrierType, DType, Type
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
from cake.machine.effects import Aligned, Async, Effect, Inside, Read, Region, Write
from cake_plugins.primitives._policy import check_hint, hint_parameter, policy
from cake_plugins.primitives._reduction import check_reduction, reduced, suffix


class BulkCopy(Primitive):
    """cp.async.bulk."""

    names = ("bulk_copy",)
    archs = ">=sm_90"
    single = True
    collective = False
    parameters = (
        parameter("destination", "shared", "global", "remote"),
        parameter("source", "global", "shared"),
        parameter("barrier", "barrier", "remote_barrier", default=0),
        hint_parameter(),
    )
    uses = ("tma.latency", "tma.bytes")

    def signature(self, site: Site) -> Type | None:
        _check(site)
        if _to_peer(site) and site.has("hint"):
            raise site.refuse("hint", "between CTAs nothing passes through the L2 cache")
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return _effects(op, reduces=False)

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        destination = op.region("destination")
        memory.write(destination, np.asarray(memory.read(op.region("source"))).reshape(destination.size))
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        return _time(op, parameters)

    def lower(self, op: Lowering, out: Writer) -> None:
        _lower(op, out, "async", "")

    cases = (
        Good(
            "rows through shared memory",
            """
@kernel(arch="sm_90a")
def copy(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0, N <= 512)
    grid(M)
    s = Shared[bf16, 512]
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("row", warps=1):
        with one_thread():
            expect_bytes(a, s[0:+N])
            bulk_copy(s[0:+N], x[block, :], a, hint="evict_first")
        wait(a, 0)
        with one_thread():
            bulk_copy(y[block, :], s[0:+N], hint="evict_last")
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 3, "N": 264},
            expect=lambda i: {"y": i["x"]},
        ),
        Good(
            "to the neighbour in the cluster",
            """
@kernel(arch="sm_90a")
def swap(x: Global[f32, 2, N], y: GlobalOut[f32, 2, N]):
    require(N == 64)
    grid(2)
    cluster(2)
    s = Shared[f32, 2, 64]
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
        expect_bytes(a, s[1])
    cluster_sync()
    with role("row", warps=1):
        store(s[0], load(x[rank, :], vector=2), vector=2)
        fence_async()
        with one_thread():
            bulk_copy(remote(s[1], rank ^ 1), s[0], remote(a, rank ^ 1))
        wait(a, 0)
        store(y[rank, :], load(s[1], vector=2), vector=2)
        cluster_sync()
""",
            dims={"N": 64},
            expect=lambda i: {"y": i["x"][::-1]},
        ),
        Bad(
            "rows of 12 bytes",
            """
@kernel(arch="sm_90a")
def copy(x: Global[bf16, M, N]):
    grid(1)
    s = Shared[bf16, 64]
    a = MBarrier(arrivals=1)
    with role("row", warps=1):
        with one_thread():
            bulk_copy(s[0:+6], x[0, 0:+6], a)  #! type/operand
""",
            dims={"M": 8, "N": 64},
        ),
        Bad(
            "a part of each row",
            """
@kernel(arch="sm_90a")
def copy(x: Global[bf16, M, N]):
    grid(1)
    s = Shared[bf16, 4, 16]
    a = MBarrier(arrivals=1)
    with role("row", warps=1):
        with one_thread():
            bulk_copy(s, x[0:+4, 0:+16], a)  #! type/operand
""",
            dims={"M": 8, "N": 64},
        ),
        Bad(
            "into a swizzled buffer",
            """
@kernel(arch="sm_90a")
def copy(x: Global[bf16, M, N]):
    require(N == 64)
    grid(1)
    s = Shared[bf16, 8, 64](swizzle=128)
    a = MBarrier(arrivals=1)
    with role("row", warps=1):
        with one_thread():
            bulk_copy(s, x[0:+8, :], a)  #! type/operand
""",
            dims={"M": 8, "N": 64},
        ),
        Bad(
            "on the mbarrier of a third CTA",
            """
@kernel(arch="sm_90a")
def pass_on(y: GlobalOut[f32, N]):
    grid(4)
    cluster(4)
    s = Shared[f32, 64]
    a = MBarrier(arrivals=1)
    with role("row", warps=1):
        with one_thread():
            bulk_copy(remote(s, rank ^ 1), s, remote(a, rank ^ 2))  #! type/operand
""",
            dims={"N": 64},
        ),
    )


class BulkReduce(Primitive):
    """cp.reduce.async.bulk."""

    names = ("bulk_reduce",)
    archs = ">=sm_90"
    single = True
    collective = False
    parameters = (
        parameter("destination", "global", "remote"),
        parameter("source", "shared"),
        parameter("operation", "text"),
        parameter("barrier", "remote_barrier", default=0),
        hint_parameter(),
    )
    uses = ("tma.latency", "tma.bytes")

    def signature(self, site: Site) -> Type | None:
        _check(site)
        dtype = site.region("destination").dtype
        check_reduction(site, dtype)
        if _to_peer(site) and dtype not in (DType.i32, DType.u32):
            raise site.refuse("destination", f"in other CTAs integers are reduced, not {dtype.value}")
        if _to_peer(site) and site.has("hint"):
            raise site.refuse("hint", "between CTAs nothing passes through the L2 cache")
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return _effects(op, reduces=True)

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        destination = op.region("destination")
        given = np.asarray(memory.read(op.region("source"))).reshape(destination.size)
        memory.write(destination, reduced(op.args["operation"], memory.read(destination), given))
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        return _time(op, parameters)

    def lower(self, op: Lowering, out: Writer) -> None:
        dtype = op.site.region("destination").dtype
        _lower(op, out, "reduce.async", suffix(op.site.text("operation"), dtype))

    cases = (
        Good(
            "added to the row that was stored",
            """
@kernel(arch="sm_90a")
def double(x: Global[bf16, N], y: GlobalOut[bf16, N]):
    require(N == 256)
    grid(1)
    s = Shared[bf16, 256]
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("row", warps=1):
        with one_thread():
            expect_bytes(a, s)
            bulk_copy(s, x, a)
        wait(a, 0)
        with one_thread():
            bulk_copy(y, s)
            bulk_commit()
            bulk_wait(0)
            bulk_reduce(y, s, "add", hint="evict_first")
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"N": 256},
            expect=lambda i: {"y": i["x"] + i["x"]},
        ),
        Good(
            "the least of both CTAs",
            """
@kernel(arch="sm_90a")
def least(x: Global[i32, 2, N], y: GlobalOut[i32, 2, N]):
    require(N == 64)
    grid(2)
    cluster(2)
    s = Shared[i32, 2, 64]
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
        expect_bytes(a, s[1])
    with role("row", warps=1):
        v = load(x[rank, :], vector=2)
        store(s[0], v, vector=2)
        store(s[1], v, vector=2)
        fence_async()
        cluster_sync()
        with one_thread():
            bulk_reduce(remote(s[1], rank ^ 1), s[0], "min", remote(a, rank ^ 1))
        wait(a, 0)
        store(y[rank, :], load(s[1], vector=2), vector=2)
        cluster_sync()
""",
            dims={"N": 64},
            expect=lambda i: {"y": np.stack([i["x"].min(axis=0)] * 2)},
        ),
        Bad(
            "floats in another CTA",
            """
@kernel(arch="sm_90a")
def least(y: GlobalOut[f32, N]):
    grid(2)
    cluster(2)
    s = Shared[f32, 64]
    a = MBarrier(arrivals=1)
    with role("row", warps=1):
        with one_thread():
            bulk_reduce(remote(s, rank ^ 1), s, "add", remote(a, rank ^ 1))  #! type/operand
""",
            dims={"N": 64},
        ),
    )


def _to_peer(site: Site) -> bool:
    return site.region("destination").remote


def _to_global(site: Site) -> bool:
    return site.region("destination").buffer.space == "global"


def _check(site: Site) -> None:
    """Refuse pieces that are no pieces, and completion where nobody waits for it."""
    destination, source = site.region("destination"), site.region("source")
    if destination.dtype is not source.dtype or destination.shape != source.shape:
        a, b = (f"{list(w.shape)} of {w.dtype.value}" for w in (source, destination))
        raise site.refuse("source", f"copies {a} into {b}")
    if source.buffer.space == destination.buffer.space and not destination.remote:
        where = "from global to global" if _to_global(site) else "within a CTA"
        raise site.refuse(None, f"the copy engine copies nothing {where}")
    if source.buffer.space == "global" and destination.remote:
        raise site.refuse("destination", "from global memory a CTA fills its own shared memory")
    if _to_global(site) and not destination.buffer.output:
        name = destination.buffer.name
        raise site.refuse("destination", f"`{name}` is an input (Global); outputs are GlobalOut")
    if _to_peer(site):
        if source.buffer.swizzle != destination.buffer.swizzle:
            raise site.refuse("source", "bytes are moved as they lie: the buffers differ in their swizzle")
    elif source.buffer.swizzle or destination.buffer.swizzle:
        raise site.refuse(None, "rows are moved as they lie: the buffer has a swizzle", help="tma_load")
    for name, window in (("destination", destination), ("source", source)):
        illegal = contiguous(window)
        if illegal is not None:
            raise site.refuse(name, illegal.reason, help=illegal.help)
    check_hint(site)
    _check_barrier(site)


def _check_barrier(site: Site) -> None:
    if _to_global(site):
        if site.has("barrier"):
            raise site.refuse("barrier", "copies to global memory complete by bulk_commit and bulk_wait")
        return
    kind = site.operand("barrier").type
    if not isinstance(kind, BarrierType):
        raise site.refuse(None, "the bytes arrive on an mbarrier, which is missing")
    if not kind.indexed:
        raise site.refuse("barrier", f"`{kind.name}` is an array", help=f"{kind.name}[i]")
    ranks = [
        expr.args[1] if isinstance(expr, n.Call) else None
        for expr in (site.operand("destination").expr, site.operand("barrier").expr)
    ]
    if ranks[0] != ranks[1]:
        message = "the mbarrier lies in the CTA whose memory is filled, and both say so in the same words"
        raise site.refuse("barrier", message, help="remote(s, r) and remote(bar, r)")


def _alignment(window: Region) -> int:
    return 8 * window.buffer.swizzle or CHUNK


def _effects(op: Op, *, reduces: bool) -> Sequence[Effect]:
    source, destination = op.region("source"), op.region("destination")
    parts = (
        (Read(source.buffer, source.box),),
        (Write(destination.buffer, destination.box, destination.cta, reduces),),
    )
    legal = [
        effect
        for window in (source, destination)
        for effect in (Inside(window), Aligned(window.buffer, window.start, _alignment(window)))
    ]
    if destination.buffer.space == "global":
        return (*legal, Async(*parts, group="bulk"))
    return (*legal, Async(*parts, barrier=op.args["barrier"], bytes=source.bytes))


def _time(op: Op, parameters: Parameters) -> Use:
    source, destination = op.region("source"), op.region("destination")
    units = {"copy": source.bytes / parameters("tma.bytes")}
    read = source.bytes if source.buffer.space == "global" else 0
    write = source.bytes if destination.buffer.space == "global" else 0
    latency = parameters("tma.latency")
    return Use(4, units, latency, l2_read=read, l2_write=write, asynchronous=True)


def _lower(op: Lowering, out: Writer, what: str, operation: str) -> None:
    source: Window = op.args["source"]
    destination: Window = op.args["destination"]
    size = op.site.region("source").bytes
    hint = policy(op.site, out)
    hinted, last = (".L2::cache_hint", ", %3") if hint else ("", "")
    if destination.buffer.space == "global":
        inputs = [("l", _global(out, destination)), ("r", _shared(out, source))]
        if hint:
            inputs.append(("l", hint))
            last = ", %2"
        text = f"cp.{what}.bulk.global.shared::cta.bulk_group{hinted}{operation} [%0], [%1], {size}{last};"
        out.asm(text, inputs=inputs)
        return
    from_global = source.buffer.space == "global"
    inputs = [
        ("r", _shared(out, destination)),
        ("l", _global(out, source)) if from_global else ("r", _shared(out, source)),
        ("r", op.args["barrier"]),
    ]
    if hint:
        inputs.append(("l", hint))
    place = "global" if from_global else "shared::cta"
    out.asm(
        f"cp.{what}.bulk.shared::cluster.{place}.mbarrier::complete_tx::bytes{hinted}{operation} "
        f"[%0], [%1], {size}, [%2]{last};",
        inputs=inputs,
    )


def _shared(out: Writer, window: Window) -> str:
    return out.shared_address(window, ["0"] * len(window.size))


def _global(out: Writer, window: Window) -> str:
    return f"{window.buffer.name} + {out.global_index(window, ['0'] * len(window.size))}"
