"""The copy engine reads shared memory that its writer did not fence

Finds
    Shared memory is written by ordinary stores and read by a bulk store (`tma_store`), ordered by a barrier
    but without a proxy fence of the writing threads in between.

Why
    Ordinary accesses and the copy engine see shared memory through different proxies. A barrier orders
    threads, never proxies: the copy engine may read bytes from before the write.

Mend
    Every writing thread executes `fence_async()` after its writes and before the rendezvous.

Silent when
    The reader is the tensor core (sync/unfenced-mma-operand), or nothing orders the two at all
    (sync/shared-race).

Source
    PTX ISA, "Async proxy", "membar/fence: fence.proxy.async".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule, insertion
from cake.machine.facts import Facts, Finding, Race
from cake_plugins.rules._fences import fence_place

MENDED = """
@kernel(arch="sm_90a")
def stage(y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("tile", warpgroups=1):
        for i in range(2):
            with one_thread():
                bulk_wait_read(0)
            named_sync(1, warps=4)
            stmatrix(s[:, :], cast(zeros(f32, 64, 64, layout="wgmma"), bf16))
            fence_async()
            named_sync(1, warps=4)
            with one_thread():
                tma_store(y[i * 64:+64, 0:+64], s[:, :])
                bulk_commit()
        with one_thread():
            bulk_wait_read(0)
"""


class UnfencedTmaStore(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "`{later}` reads {buffer} before what `{earlier}` wrote is visible to the copy engine"
    help = "add fence_async() {place}"
    cases = (
        Bad(
            "a barrier is no proxy fence",
            """
@kernel(arch="sm_90a")
def stage(y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("tile", warpgroups=1):
        for i in range(2):
            with one_thread():
                bulk_wait_read(0)
            named_sync(1, warps=4)
            stmatrix(s[:, :], cast(zeros(f32, 64, 64, layout="wgmma"), bf16))  #> never fenced
            named_sync(1, warps=4)
            with one_thread():
                tma_store(y[i * 64:+64, 0:+64], s[:, :])  #!
                bulk_commit()
        with one_thread():
            bulk_wait_read(0)
""",
            fixed=MENDED,
            dims={"M": 128, "N": 64},
        ),
        Good("every writer fences", MENDED, dims={"M": 128, "N": 64}),
    )

    def claims(self, finding: Finding) -> bool:
        match finding:
            case Race(later=later, cause="unfenced"):
                shared = later.buffer.space == "shared"
                return later.asynchronous and shared and not later.write and later.primitive != "wgmma"
        return False

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for race in filter(self.claims, facts.of(Race)):
            earlier, later = race.earlier, race.later
            yield self.report(
                later.span,
                "read through the async proxy",
                secondary=((earlier.span, "written through the generic proxy, never fenced"),),
                buffer=later.buffer.name,
                earlier=earlier.primitive,
                later=later.primitive,
                place=fence_place(earlier, "before the rendezvous"),
                fix=()
                if earlier.asynchronous
                else insertion(facts, earlier.span, "fence_async()", behind=True),
            )
