"""A copy uses a tensor map that its thread did not acquire

Finds
    A load reads a tensor map in global memory that was published before it, without `fence_tensormap` by the
    issuing thread in between.

Why
    The copy engine keeps tensor maps in a cache of its own and reads them through a proxy of their own:
    without the acquire it may use the map that stood there before.

Mend
    The thread that issues the load executes `fence_tensormap(maps[g, :])` on that map after it was published.

Silent when
    Nothing orders the publication before the load at all (sync/global-race).

Source
    PTX ISA, "membar / fence: fence.proxy.tensormap"; public reports of grouped products that are slightly
    wrong at times.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Race

KERNEL = """
@kernel(arch="sm_90a")
def part(x: Global[bf16, M, N], y: GlobalOut[bf16, 2, 8, N], maps: GlobalOut[u32, 2, 32]):
    require(N == 64, M >= 16)
    grid(1)
    t = Shared[u32, 32]
    s = Shared[bf16, 2, 8, 64](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        tensormap_init(t, x[0:+8, :], s[0])
        tensormap_publish(maps[0, :], t)
        with one_thread():
            tensormap_replace(t, x[8, 0], 8, N)
        tensormap_publish(maps[1, :], t){publish}
        with one_thread():
            fence_tensormap(maps[0, :])
            {fence}
            expect_bytes(full, s)
            tma_load(s[0], x[0:+8, :], full, map=maps[0, :])
            tma_load(s[1], x[0:+8, :], full, map=maps[1, :]){load}
        wait(full, 0)
        with one_thread():
            for i in range(2):
                tma_store(y[i, :, :], s[i])
            bulk_commit()
            bulk_wait_read(0)
"""


class UnacquiredTensormap(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = (
        "`{later}` uses a tensor map in {buffer} before what `{earlier}` wrote is visible to the copy engine"
    )
    help = "add fence_tensormap(...) on this map before line {line}, in the thread that issues the load"
    cases = (
        Bad(
            "one of two maps",
            KERNEL.format(publish="  #> published here", fence="pass", load="  #!"),
            fixed=KERNEL.format(publish="", fence="fence_tensormap(maps[1, :])", load=""),
            dims={"M": 16, "N": 64},
            records=("D08",),
        ),
        Good(
            "both acquired",
            KERNEL.format(publish="", fence="fence_tensormap(maps[1, :])", load=""),
            dims={"M": 16, "N": 64},
        ),
    )

    def claims(self, finding: Finding) -> bool:
        match finding:
            case Race(later=later, cause="unfenced"):
                return later.proxy == "tensormap"
        return False

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for race in filter(self.claims, facts.of(Race)):
            earlier, later = race.earlier, race.later
            yield self.report(
                later.span,
                "the map is read here",
                secondary=((earlier.span, "published here"),),
                buffer=later.buffer.name,
                earlier=earlier.primitive,
                later=later.primitive,
                line=later.span.line,
            )
