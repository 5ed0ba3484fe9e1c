"""cluster_arrive, cluster_wait, cluster_sync: the CTAs of a cluster meet (sm_90 and later)

Takes
    Nothing. Executed by every warp of every CTA of the cluster: an arrival, then its wait. `cluster_sync()`
    is both at once.
Touches
    Nothing. An arrival makes what the warp has done known (release) to those whose wait it ends (acquire). It
    is no proxy fence.
Completes when
    `cluster_arrive` at once; `cluster_wait` when every warp of the cluster that has not ended has arrived.
Source
    PTX ISA, "barrier.cluster".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cake.ir.types import Type
from cake.kinds.primitive import Bad, Good, Lowering, Op, Parameters, Primitive, Site, Use, Writer
from cake.machine.effects import ClusterArrive, ClusterWait, Effect

ARRIVE = "barrier.cluster.arrive.release.aligned;"
WAIT = "barrier.cluster.wait.acquire.aligned;"

LAST_IN_ONE_THREAD = """
@kernel(arch="sm_90a")
def wrong(y: GlobalOut[f32, N]):
    grid(2)
    cluster(2)
    with role("row", warps=1):
        with one_thread():
            CALL()  #! type/collective
"""
BEFORE_HOPPER = """
@kernel(arch="sm_80")
def wrong(y: GlobalOut[f32, N]):
    grid(2)
    with role("row", warps=1):
        CALL()  #! arch/unsupported
"""
APART = """
@kernel(arch="sm_90a")
def apart(x: Global[f32, N], y: GlobalOut[f32, 2, N]):
    grid(2)
    cluster(2)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        cluster_arrive()
        store(y[block, :], v * 2.0, vector=1)
        cluster_wait()
"""


class _ClusterBarrier(Primitive):
    archs = ">=sm_90"

    def signature(self, site: Site) -> Type | None:
        return None


class ClusterArrives(_ClusterBarrier):
    """barrier.cluster.arrive: counted, goes on."""

    names = ("cluster_arrive",)

    def effects(self, op: Op) -> Sequence[Effect]:
        return (ClusterArrive(),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm(ARRIVE)

    cases = (
        Good(
            "work between arrival and wait",
            APART,
            dims={"N": 32},
            expect=lambda i: {"y": np.stack([2 * i["x"]] * 2)},
        ),
        Bad("in one thread", LAST_IN_ONE_THREAD.replace("CALL", "cluster_arrive"), dims={"N": 1}),
        Bad("before Hopper", BEFORE_HOPPER.replace("CALL", "cluster_arrive"), dims={"N": 1}),
    )


class ClusterWaits(_ClusterBarrier):
    """barrier.cluster.wait: blocks until the whole cluster has arrived."""

    names = ("cluster_wait",)
    uses = ("cluster.latency",)

    def effects(self, op: Op) -> Sequence[Effect]:
        return (ClusterWait(),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1, latency=parameters("cluster.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm(WAIT)

    cases = (
        Good("after its arrival", APART, dims={"N": 32}, expect=lambda i: {"y": np.stack([2 * i["x"]] * 2)}),
        Bad("in one thread", LAST_IN_ONE_THREAD.replace("CALL", "cluster_wait"), dims={"N": 1}),
    )


class ClusterSync(_ClusterBarrier):
    """barrier.cluster.arrive and .wait."""

    names = ("cluster_sync",)
    uses = ("cluster.latency",)

    def effects(self, op: Op) -> Sequence[Effect]:
        return (ClusterArrive(), ClusterWait())

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(2, latency=parameters("cluster.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm(ARRIVE)
        out.asm(WAIT)

    cases = (
        Good(
            "before a peer's mbarrier is used, and before the end",
            """
@kernel(arch="sm_90a")
def ping(x: Global[f32, N], y: GlobalOut[f32, 2, N]):
    grid(2)
    cluster(2)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cluster_sync()
    with role("row", warps=1):
        with one_thread():
            arrive(remote(a, 1 - rank))
        wait(a, 0, scope="cluster")
        store(y[block, :], load(x[:], vector=1, fill=0.0), vector=1)
""",
            dims={"N": 32},
            expect=lambda i: {"y": np.stack([i["x"]] * 2)},
        ),
        Bad("in one thread", LAST_IN_ONE_THREAD.replace("CALL", "cluster_sync"), dims={"N": 1}),
    )
