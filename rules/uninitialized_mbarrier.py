"""An mbarrier is used that nobody initialized, or initialized twice

Finds
    A wait, an arrival or a copy names an mbarrier (or a slot of an array) without initialization, beyond
    the array, or initialized a second time.

Why
    Its bytes are whatever shared memory held; a second initialization forgets arrivals in flight.

Mend
    One `mbarrier_init(array)` in one thread at the start of the kernel; slots from `ring(j, n)` with the
    array's n.

Silent when
    The initialization exists but is not visible (unfenced-mbarrier-init, unsynced-mbarrier-init).

Source
    PTX ISA, "mbarrier.init", "mbarrier.inval".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
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


KINDS = {"uninitialized": "is used but was never initialized", "reinitialized": "is initialized twice"}
"""What the machine calls it, and how it is said."""


class UninitializedMbarrier(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "{barrier} {kind}"
    help = "initialize every slot of {barrier} once, at the start of the kernel"
    cases = (
        Bad(
            "never initialized",
            """
@kernel(arch="sm_90a")
def one(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 8, 64](swizzle=128)
    bar = MBarrier(arrivals=1)
    with one_thread():
        pass
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(bar, s)  #!
            tma_load(s, x[0:+8, 0:+64], bar)
        wait(bar, 0)
        with one_thread():
            tma_store(y[0:+8, 0:+64], s)
            bulk_commit()
            bulk_wait_read(0)
""",
            fixed=MENDED,
            dims={"M": 8, "N": 64},
        ),
        Good("initialized once", MENDED, dims={"M": 8, "N": 64}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, BarrierMisuse) and finding.kind in KINDS

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in filter(self.claims, facts.of(BarrierMisuse)):
            yield self.report(
                found.span,
                "here",
                secondary=((found.other, "initialized here"),) if found.other else (),
                barrier=found.slot.name,
                kind=KINDS[found.kind],
            )
