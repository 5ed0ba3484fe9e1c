"""The barrier of the cluster is used out of turn

Finds
    `cluster_arrive()` twice without a `cluster_wait()` between, or `cluster_wait()` without having arrived.

Why
    Each warp arrives once for each opening of the barrier and waits for it before it arrives again; else what
    the hardware does is undefined, mostly a hang.

Mend
    Arrivals and waits in turn, or `cluster_sync()`, which is both.

Silent when
    Warps that end without waiting: they are not counted any more.

Source
    PTX ISA, "barrier.cluster": undefined behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import ClusterMisuse, Facts, Finding

PAIR = """
@kernel(arch="sm_90a")
def pair(x: Global[f32, N], y: GlobalOut[f32, 2, N]):
    require(N == 32)
    grid(2)
    cluster(2)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        cluster_arrive()
        store(y[block, :], v, vector=1)
        cluster_wait()
"""


class ClusterBarrierOutOfTurn(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "the warp {what} at the barrier of the cluster"
    help = "cluster_arrive() and cluster_wait() in turn, or cluster_sync()"
    cases = (
        Bad(
            "waits without having arrived",
            PAIR.replace("        cluster_arrive()\n", "").replace("cluster_wait()", "cluster_wait()  #!"),
            fixed=PAIR,
        ),
        Bad(
            "arrives twice",
            PAIR.replace("cluster_wait()", "cluster_arrive()  #!"),
            fixed=PAIR,
        ),
        Good("in turn", PAIR),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, ClusterMisuse)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        words = {"arrives_twice": "arrives again", "waits_unannounced": "waits without having arrived"}
        for found in facts.of(ClusterMisuse):
            yield self.report(found.span, "here", what=words[found.kind])
