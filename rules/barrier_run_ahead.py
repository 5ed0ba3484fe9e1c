"""A warp comes to a named barrier again before its earlier arrival there was consumed

Finds
    `named_arrive` (or `named_sync`) on a barrier at which the same warp has arrived before, where nothing
    tells the warp that those who wait there have been released.

Why
    An arrival is counted whatever the others do. A warp that runs ahead is counted twice for one release:
    the barrier opens before all have come, and the waiting side reads what is not written yet.

Mend
    Wait for the other side before the next arrival, by a second barrier of the way back; or alternate between
    two ids where the two sides are never more than one turn apart.

Silent when
    The warp waited at that barrier itself, or learnt of its release by another barrier.

Source
    PTX ISA, "bar{.cta}, barrier{.cta}": bar.arrive does not wait.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, RunAhead

MENDED = """
@kernel(arch="sm_80")
def relay(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    require(N == 32)
    grid(1)
    s = Shared[f32, 2, 32]
    with role("read", warps=1):
        for i in range(M):
            if i >= 2:
                named_sync(3 + i % 2, warps=2)
            store(s[i % 2, :], load(x[i, :], vector=1, fill=0.0), vector=1)
            named_arrive(1 + i % 2, warps=2)
    with role("write", warps=1):
        for i in range(M):
            named_sync(1 + i % 2, warps=2)
            store(y[i, :], load(s[i % 2, :], vector=1, fill=0.0), vector=1)
            if i + 2 < M:
                named_arrive(3 + i % 2, warps=2)
"""


class BarrierRunAhead(Rule):
    family = "sync"
    message = "barrier {id} may count this warp twice: nothing says that its arrival before was consumed"
    help = "wait at another barrier for those who meet here, before coming again"
    cases = (
        Bad(
            "arrives again at once",
            """
@kernel(arch="sm_80")
def relay(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    require(N == 32)
    grid(1)
    s = Shared[f32, 4, 32]
    with role("read", warps=1):
        for i in range(M):
            store(s[i, :], load(x[i, :], vector=1, fill=0.0), vector=1)
            named_arrive(1, warps=2)  #!
    with role("write", warps=1):
        for i in range(M):
            named_sync(1, warps=2)
            store(y[i, :], load(s[i, :], vector=1, fill=0.0), vector=1)
""",
            fixed="""
@kernel(arch="sm_80")
def relay(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    require(N == 32)
    grid(1)
    s = Shared[f32, 4, 32]
    with role("read", warps=1):
        for i in range(M):
            store(s[i, :], load(x[i, :], vector=1, fill=0.0), vector=1)
            named_sync(1, warps=2)
    with role("write", warps=1):
        for i in range(M):
            named_sync(1, warps=2)
            store(y[i, :], load(s[i, :], vector=1, fill=0.0), vector=1)
""",
            dims={"M": 4, "N": 32},
            records=("N02",),
        ),
        Good("two ids, and a way back", MENDED, dims={"M": 5, "N": 32}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, RunAhead)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in facts.of(RunAhead):
            same = found.earlier == found.span
            second = () if same else ((found.earlier, "arrived here before"),)
            yield self.report(found.span, "comes again", secondary=second, id=found.id)
