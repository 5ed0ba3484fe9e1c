"""An mbarrier is used before its initialization is visible

Finds
    After `mbarrier_init` there is no `fence_mbarrier_init()` by the initializing thread before the
    asynchronous engines or other warps use the mbarrier.

Why
    The initialization is an ordinary write; the copy engine completes on the mbarrier through another
    proxy.

Mend
    `fence_mbarrier_init()` right after the initializations, in the same thread, then `cta_sync()`.

Silent when
    The rendezvous is missing (sync/unsynced-mbarrier-init).

Source
    PTX ISA, "fence.mbarrier_init".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic, Edit
from cake.ir import nodes as n
from cake.kinds.rule import Bad, Good, Rule, insertion
from cake.machine.facts import BarrierMisuse, Facts, Finding

MENDED = """
@kernel(arch="sm_90a")
def one(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 8, 64](swizzle=128)
    bar = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(bar)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(bar, s)
            tma_load(s, x[0:+8, 0:+64], bar)
        wait(bar, 0)
        with one_thread():
            tma_store(y[0:+8, 0:+64], s)
            bulk_commit()
            bulk_wait_read(0)
"""


KINDS = {"init_unfenced": "no fence.mbarrier_init"}
"""What the machine calls it, and how it is said."""


class UnfencedMbarrierInit(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "{barrier} is used before its initialization is fenced ({kind})"
    help = "add fence_mbarrier_init() after the last mbarrier_init(...)"
    cases = (
        Bad(
            "no fence",
            """
@kernel(arch="sm_90a")
def one(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 8, 64](swizzle=128)
    bar = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(bar)  #> initialized here
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(bar, s)
            tma_load(s, x[0:+8, 0:+64], bar)  #!
        wait(bar, 0)
        with one_thread():
            tma_store(y[0:+8, 0:+64], s)
            bulk_commit()
            bulk_wait_read(0)
""",
            fixed=MENDED,
            dims={"M": 8, "N": 64},
        ),
        Good("fenced and met", MENDED, dims={"M": 8, "N": 64}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, BarrierMisuse) and finding.kind in KINDS

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in filter(self.claims, facts.of(BarrierMisuse)):
            yield self.report(
                found.span,
                "used here",
                secondary=((found.other, "initialized here"),) if found.other else (),
                barrier=found.slot.name,
                kind=KINDS[found.kind],
                fix=_fence(facts),
            )


def _fence(facts: Facts) -> tuple[Edit, ...]:
    """Behind the last initialization, if all stand in one place."""
    kernel = facts.instance.kernel
    found = [call.span for call in n.calls(kernel.body) if call.name == "mbarrier_init"]
    columns = {span.column for span in found}
    return insertion(facts, max(found), "fence_mbarrier_init()", behind=True) if len(columns) == 1 else ()
