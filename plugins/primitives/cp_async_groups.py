"""cp_async_commit, cp_async_wait, cp_async_arrive: when the copies of a thread are complete (sm_80)

Takes
    `cp_async_commit()` closes a group of the calling thread's copies, `cp_async_wait(n)` blocks until at most
    `n` of its groups are in flight. `cp_async_arrive(bar)` lets an mbarrier wait for all earlier copies of
    the executing threads: its phase, which the warp must still arrive on, does not complete before them.
    `cp_async_arrive_noinc(bar)` is an arrival itself, one of each lane (32 of a warp), made when its copies
    are complete.
Touches
    Nothing but the mbarrier.
Completes when
    `cp_async_wait`: the older groups have written, visible to the calling thread; to others after a
    rendezvous. `cp_async_arrive`: who waits for the phase sees the bytes. Towards the tensor cores and the
    copy engine both need `fence_async()` after the wait: cp.async writes through the generic proxy.
Source
    PTX ISA, "cp.async.commit_group", "cp.async.wait_group", "cp.async.mbarrier.arrive".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cake.ir.layouts import LANES
from cake.ir.types import BarrierType, Type
from cake.kinds.primitive import Bad, Good, Lowering, Op, Parameters, Primitive, Site, Use, Writer, parameter
from cake.machine.effects import ArriveCopied, Commit, Effect, WaitGroup


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


class CpAsyncArrive(Primitive):
    """cp.async.mbarrier.arrive, which leaves the pending count as it is, and with .noinc lowers it."""

    names = ("cp_async_arrive", "cp_async_arrive_noinc")
    archs = ">=sm_90"
    parameters = (parameter("barrier", "barrier"),)

    def signature(self, site: Site) -> Type | None:
        kind = site.operand("barrier").type
        assert isinstance(kind, BarrierType)
        if not kind.indexed:
            raise site.refuse("barrier", f"`{kind.name}` is an array", help=f"{kind.name}[i]")
        if site.call.name.endswith("_noinc") and kind.arrivals % LANES:
            message = f"{LANES} lanes arrive, and a phase of `{kind.name}` has {kind.arrivals} arrivals"
            raise site.refuse("barrier", message, help="cp_async_arrive(...), then arrive(...) for the warp")
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        counted = not op.site.call.name.endswith("_noinc")
        return (ArriveCopied(op.args["barrier"], LANES, counted),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(2)

    def lower(self, op: Lowering, out: Writer) -> None:
        noinc = ".noinc" if op.site.call.name.endswith("_noinc") else ""
        out.asm(f"cp.async.mbarrier.arrive{noinc}.shared::cta.b64 [%0];", inputs=[("r", op.args["barrier"])])

    cases = (
        Good(
            "tiles by the copy engine or, at the end, by threads, on one barrier",
            """
@kernel(arch="sm_90a")
def stage(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 2, 16, 64](swizzle=128)
    full = MBarrier[2](arrivals=1)
    free = MBarrier[2](arrivals=1)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warps=1):
        for j in range(ceil_div(M, 16)):
            i, parity = ring(j, 2)
            wait(free[i], parity ^ 1)
            if j * 16 + 16 <= M:
                with one_thread():
                    expect_bytes(full[i], s[i])
                    tma_load(s[i], x[j * 16:+16, 0:+64], full[i])
            else:
                cp_async(s[i], x[j * 16:+16, 0:+64])
                cp_async_arrive(full[i])
                arrive(full[i])
    with role("store", warps=1):
        for j in range(ceil_div(M, 16)):
            i, parity = ring(j, 2)
            wait(full[i], parity)
            fence_async()
            with one_thread():
                tma_store(y[j * 16:+16, 0:+64], s[i])
                bulk_commit()
                bulk_wait_read(0)
                arrive(free[i])
""",
            dims={"M": 85, "N": 40},
            expect=lambda i: {"y": i["x"]},
        ),
        Good(
            "an arrival of each lane",
            """
@kernel(arch="sm_90a")
def stage(x: Global[f32, M, N], y: GlobalOut[f32, N]):
    require(N % 4 == 0)
    grid(1)
    s = Shared[f32, 4, 32]
    full = MBarrier(arrivals=64)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warps=2):
        cp_async(s[:, :], x[0:+4, 0:+32])
        cp_async_arrive_noinc(full)
    with role("store", warps=1):
        wait(full, 0)
        store(y[:], load(s[2, 0:+N], vector=1), vector=1)
""",
            dims={"M": 4, "N": 32},
            expect=lambda i: {"y": np.asarray(i["x"])[2]},
        ),
        Bad(
            "lanes that nobody counts",
            """
@kernel(arch="sm_90a")
def stage(x: Global[f32, M, N]):
    grid(1)
    s = Shared[f32, 4, 32]
    full = MBarrier(arrivals=1)
    with role("load", warps=1):
        cp_async(s[:, :], x[0:+4, 0:+32])
        cp_async_arrive_noinc(full)  #! type/operand
""",
            dims={"M": 4, "N": 32},
        ),
    )
