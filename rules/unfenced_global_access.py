"""The copy engine uses elements of an output that a thread wrote or read without a fence

Finds
    An output tensor is written (or read) by ordinary instructions and then used by the copy engine, ordered
    but without `fence_async("global")` by the threads in between.

Why
    Ordinary accesses and the copy engine see global memory through different proxies, as they do shared
    memory. A barrier orders threads, never proxies, and `fence_async()` speaks for shared memory only.

Mend
    The threads execute `fence_async("global")` after their accesses and before the rendezvous.

Silent when
    The ordinary accesses are those of another kernel: its end publishes them.

Source
    PTX ISA, "Async proxy", "membar/fence: fence.proxy.async"; public reports of NaN in products whose operand
    the same stream had just quantized.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Race

KERNEL = """
@kernel(arch="sm_90a")
def quantize(x: Global[f32, M, N], y: GlobalOut[bf16, M, N], c: GlobalOut[f32, M, M]):
    require(M == 64, N == 64)
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warpgroups=1):
        for i in range(64):
            v = load(x[i, :], vector=1, fill=0.0)
            store(y[i, :], cast(v, bf16), vector=1){write}
        {fence}
        named_sync(1, warps=4)
        with one_thread():
            expect_bytes(full, s)
            tma_load(s, y[:, :], full){read}
        wait(full, 0)
        acc = zeros(f32, 64, 64, layout="wgmma")
        wgmma_fence()
        acc = wgmma(s, s, acc)
        wgmma_commit()
        wgmma_wait(0)
        store(c[0:+64, 0:+64], acc, vector=2)
"""


class UnfencedGlobalAccess(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "`{later}` uses {buffer} before what `{earlier}` did to it is visible to the copy engine"
    help = 'add fence_async("global") after line {line}, before the rendezvous'
    cases = (
        Bad(
            "rows that the CTA itself quantized",
            KERNEL.format(write="  #> never fenced", fence="fence_async()", read="  #!"),
            fixed=KERNEL.format(write="", fence='fence_async("global")', read=""),
            dims={"M": 64, "N": 64},
            records=("P05",),
        ),
        Good(
            "every writer fences",
            KERNEL.format(write="", fence='fence_async("all")', read=""),
            dims={"M": 64, "N": 64},
        ),
    )

    def claims(self, finding: Finding) -> bool:
        match finding:
            case Race(later=later, cause="unfenced"):
                return later.buffer.space == "global" and later.proxy == "async"
        return False

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for race in filter(self.claims, facts.of(Race)):
            earlier, later = race.earlier, race.later
            yield self.report(
                later.span,
                "used through the async proxy",
                secondary=((earlier.span, "used through the generic proxy, never fenced"),),
                buffer=later.buffer.name,
                earlier=earlier.primitive,
                later=later.primitive,
                line=earlier.span.line,
            )
