"""The CTA ends while the copy engine still reads its shared memory

Finds
    A bulk store is in flight, or was never committed, when its thread ends.

Why
    Shared memory goes to the next CTA as soon as this one ends; the copy engine would store that CTA's
    bytes.

Mend
    `bulk_commit()` after the stores and `bulk_wait_read(0)` by the same thread before the end.

Silent when
    Completion of the writes to global memory: the end of the kernel orders them.

Source
    PTX ISA, "cp.async.bulk.commit_group", "cp.async.bulk.wait_group.read".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Undrained

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


class UndrainedBulkStore(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "a bulk store {state} when its thread ends"
    help = "end the thread with bulk_commit() and bulk_wait_read(0)"
    cases = (
        Bad(
            "no wait at the end",
            """
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
            tma_store(y[0:+8, 0:+64], s)  #!
            bulk_commit()
""",
            fixed=MENDED,
            dims={"M": 8, "N": 64},
        ),
        Bad(
            "never committed",
            """
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
            tma_store(y[0:+8, 0:+64], s)  #!
            bulk_wait_read(0)
""",
            fixed=MENDED,
            dims={"M": 8, "N": 64},
        ),
        Good("drained", MENDED, dims={"M": 8, "N": 64}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, Undrained) and finding.group == "bulk"

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in filter(self.claims, facts.of(Undrained)):
            state = "is in flight" if found.committed else "was never committed"
            yield self.report(found.span, "issued here", state=state)
