"""A CTA reaches into another of its cluster that may not be there

Finds
    An arrival, copy or access to the shared memory of another CTA of the cluster of which nothing says
    that it has started, or that it ends only afterwards; or a rank that the cluster does not have.

Why
    Shared memory belongs to a CTA from its start to its end. A CTA that has not started yet loses what is
    sent to it; one that has ended faults whoever reaches it ("CTA not present"), often much later and
    elsewhere.

Mend
    A `cluster_sync()` behind the initialization of mbarriers and before the first access to a peer, and
    one behind the last before the kernel ends.

Silent when
    The peer itself waits for the access (on the mbarrier where it arrives), or a barrier of the cluster
    or an mbarrier tells it.

Source
    PTX ISA, "Distributed shared memory", "barrier.cluster". Reported for clustered kernels in production
    (D01, D02) and at their start (B02).
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine import facts as ft
from cake.machine.facts import Facts, Finding

PING = """
@kernel(arch="sm_90a")
def ping(x: Global[f32, N], y: GlobalOut[f32, 2, N]):
    require(N == 32)
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
        store(y[block, :], load(x[:], vector=1, fill=0.0), vector=1)
    cluster_sync()
"""


class AbsentPeer(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "CTA {cta} of the cluster {what}"
    help = "{mend}"
    cases = (
        Bad(
            "nothing keeps the peer until the arrival is there",
            PING.removesuffix("    cluster_sync()\n").replace("1 - rank))", "1 - rank))  #!"),
            fixed=PING,
            records=("D01", "D02"),
        ),
        Bad(
            "only the CTA's own warps meet before the peer is reached",
            PING.replace("    cluster_sync()\n    with", "    cta_sync()\n    with").replace(
                "1 - rank))", "1 - rank))  #!"
            ),
            fixed=PING,
            records=("B02",),
        ),
        Bad(
            "a rank beyond the cluster",
            PING.replace("1 - rank))", "2 + rank))  #!"),
            fixed=PING,
        ),
        Good("met at the start and at the end", PING),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, ft.AbsentPeer)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        words = {
            "unstarted": ("may not have started", "cluster_sync() before the first access to a peer"),
            "exited": ("may have ended", "cluster_sync() behind the last access, before the kernel ends"),
            "outside": ("does not exist", f"ranks are 0 to {facts.instance.cluster - 1}"),
        }
        told: set[str] = set()
        for found in facts.of(ft.AbsentPeer):
            if found.kind not in told:
                told.add(found.kind)
                what, mend = words[found.kind]
                yield self.report(found.span, "reached from here", cta=found.cta, what=what, mend=mend)
