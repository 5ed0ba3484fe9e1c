"""The tensor cores read shared memory that its writer did not fence

Finds
    An operand of `wgmma` in shared memory was written by ordinary stores, without a proxy fence of the
    writing threads before the rendezvous.

Why
    wgmma reads shared memory through the async proxy; a barrier does not carry ordinary writes there.

Mend
    Every writing thread executes `fence_async()` after its writes and before the rendezvous.

Silent when
    The operand came by TMA: both are in the async proxy.

Source
    PTX ISA, "Asynchronous wgmma", "wgmma.fence": accesses across proxies need a proxy fence.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule, insertion
from cake.machine.facts import Facts, Finding, Race
from cake_plugins.rules._fences import fence_place

MENDED = """
@kernel(arch="sm_90a")
def square(y: GlobalOut[f32, M, N]):
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("tile", warpgroups=1):
        stmatrix(s[:, :], cast(zeros(f32, 64, 64, layout="wgmma"), bf16))
        fence_async()
        named_sync(1, warps=4)
        acc = zeros(f32, 64, 64, layout="wgmma")
        wgmma_fence()
        acc = wgmma(s, s, acc)
        wgmma_commit()
        wgmma_wait(0)
        store(y[0:+64, 0:+64], acc, vector=1)
"""

COPIED = """
@kernel(arch="sm_90a")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K == 64)
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warps=4):
        cp_async(s[0:+64, :], a[0:+64, :]){wrote}
        cp_async_arrive(full)
        named_sync(1, warps=4)
        with one_thread():
            arrive(full)
    with role("mma", warpgroups=1):
        acc = zeros(f32, 64, 64, layout="wgmma")
        wait(full, 0)
        {fence}
        wgmma_fence()
        acc = wgmma(s, s, acc){read}
        wgmma_commit()
        wgmma_wait(0)
        store(c[0:+64, 0:+64], acc, vector=1)
"""

OTHER_NAME = """
@kernel(arch="sm_90a")
def square(y: GlobalOut[f32, M, N]):
    grid(1)
    tiles = Shared[bf16, 2, 64, 64](swizzle=128)
    s = Shared[bf16, 64, 64](swizzle=128, overlay=tiles, offset=8192)
    with role("tile", warpgroups=1):
        stmatrix(tiles[1], cast(zeros(f32, 64, 64, layout="wgmma"), bf16)){wrote}
        {fence}
        named_sync(1, warps=4)
        acc = zeros(f32, 64, 64, layout="wgmma")
        wgmma_fence()
        acc = wgmma(s, s, acc){read}
        wgmma_commit()
        wgmma_wait(0)
        store(y[0:+64, 0:+64], acc, vector=1)
"""


class UnfencedMmaOperand(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "`{later}` reads {buffer} before what `{earlier}` wrote is visible to the tensor cores"
    help = "add fence_async() {place}"
    cases = (
        Bad(
            "an operand written by stmatrix",
            """
@kernel(arch="sm_90a")
def square(y: GlobalOut[f32, M, N]):
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("tile", warpgroups=1):
        stmatrix(s[:, :], cast(zeros(f32, 64, 64, layout="wgmma"), bf16))  #> never fenced
        named_sync(1, warps=4)
        acc = zeros(f32, 64, 64, layout="wgmma")
        wgmma_fence()
        acc = wgmma(s, s, acc)  #!
        wgmma_commit()
        wgmma_wait(0)
        store(y[0:+64, 0:+64], acc, vector=1)
""",
            fixed=MENDED,
            dims={"M": 64, "N": 64},
        ),
        Bad(
            "written under the name of another buffer over the same bytes",
            OTHER_NAME.format(wrote="  #> never fenced", fence="pass", read="  #!"),
            fixed=OTHER_NAME.format(wrote="", fence="fence_async()", read=""),
            dims={"M": 64, "N": 64},
            records=("P04",),
        ),
        Bad(
            "an operand copied by cp.async, which writes through the generic proxy",
            COPIED.format(wrote="  #> never fenced", fence="pass", read="  #!"),
            fixed=COPIED.format(wrote="", fence="fence_async()", read=""),
            dims={"M": 64, "K": 64},
        ),
        Good("fenced before the barrier", MENDED, dims={"M": 64, "N": 64}),
    )

    def claims(self, finding: Finding) -> bool:
        match finding:
            case Race(later=later, cause="unfenced"):
                return later.asynchronous and not later.write and later.primitive == "wgmma"
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
