"""The copy engine overwrites shared memory that ordinary accesses still use

Finds
    A bulk load (`tma_load`) writes bytes that threads read or wrote by ordinary instructions, ordered by an
    mbarrier but without a proxy fence of those threads in between.

Why
    The proxies are ordered by a fence only. Without it the new bytes may land before an old read is
    performed.

Mend
    The consuming threads execute `fence_async()` after their last access and before they arrive.

Silent when
    The readers are asynchronous themselves (wgmma): they are in the async proxy already.

Source
    PTX ISA, "Async proxy"; public reports of write-after-read across proxies.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Race
from cake_plugins.rules._fences import fence_place

MENDED = """
@kernel(arch="sm_90a")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0)
    grid(1)
    at = Shared[bf16, 2, 16, 64](swizzle=128)
    full = MBarrier[2](arrivals=1)
    free = MBarrier[2](arrivals=1)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warps=1):
        with one_thread():
            for j in range(ceil_div(K, 64)):
                s, parity = ring(j, 2)
                wait(free[s], parity ^ 1)
                expect_bytes(full[s], at[s])
                tma_load(at[s], a[0:+16, j * 64:+64], full[s])
    with role("mma", warps=1):
        acc = zeros(f32, 16, 16, layout="mma")
        for j in range(ceil_div(K, 64)):
            s, parity = ring(j, 2)
            wait(full[s], parity)
            fa = ldmatrix(at[s], layout="mma_a")
            fb = ldmatrix(at[s], layout="mma_b")
            acc = mma(fa, fb, acc)
            fence_async()
            arrive(free[s])
        store(c[0:+16, 0:+16], acc, vector=1)
"""


class UnfencedTmaOverwrite(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = (
        "`{later}` overwrites {buffer}, which `{earlier}` used through the generic proxy without a fence"
    )
    help = "add fence_async() {place}"
    cases = (
        Bad(
            "ldmatrix, then the ring wraps",
            """
@kernel(arch="sm_90a")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0)
    grid(1)
    at = Shared[bf16, 2, 16, 64](swizzle=128)
    full = MBarrier[2](arrivals=1)
    free = MBarrier[2](arrivals=1)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warps=1):
        with one_thread():
            for j in range(ceil_div(K, 64)):
                s, parity = ring(j, 2)
                wait(free[s], parity ^ 1)
                expect_bytes(full[s], at[s])
                tma_load(at[s], a[0:+16, j * 64:+64], full[s])  #!
    with role("mma", warps=1):
        acc = zeros(f32, 16, 16, layout="mma")
        for j in range(ceil_div(K, 64)):
            s, parity = ring(j, 2)
            wait(full[s], parity)
            fa = ldmatrix(at[s], layout="mma_a")
            fb = ldmatrix(at[s], layout="mma_b")  #> never fenced
            acc = mma(fa, fb, acc)
            arrive(free[s])
        store(c[0:+16, 0:+16], acc, vector=1)
""",
            fixed=MENDED,
            dims={"M": 16, "K": 320},
        ),
        Good("the consumer fences before it releases", MENDED, dims={"M": 16, "K": 320}),
    )

    def claims(self, finding: Finding) -> bool:
        match finding:
            case Race(later=later, cause="unfenced"):
                shared = later.buffer.space == "shared"
                return later.asynchronous and shared and later.write
        return False

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for race in filter(self.claims, facts.of(Race)):
            earlier, later = race.earlier, race.later
            yield self.report(
                later.span,
                "written through the async proxy",
                secondary=((earlier.span, "used through the generic proxy, never fenced"),),
                buffer=later.buffer.name,
                earlier=earlier.primitive,
                later=later.primitive,
                place=fence_place(earlier, "before the slot is released"),
            )
