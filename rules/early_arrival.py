"""An arrival may count for the phase before its own

Finds
    A warp arrives on an mbarrier (or announces bytes on it) without knowing that the phase before is
    complete.

Why
    An arrival counts for whatever phase is current. If the copies of the phase before are still under way,
    `expect_bytes` adds to that phase: it completes late or never, or with an arrival too many. Whether it
    happens depends on the speed of the copies.

Mend
    Arrive after the wait that shows the phase before to be over: a producer waits for the slot's release
    (`wait(free[s], parity ^ 1)`) before `expect_bytes(full[s], ...)`.

Silent when
    The warp waited for that phase, or learnt of it from one that did; all arrivals of the phase were its
    own and no bytes were expected.

Source
    PTX ISA, "mbarrier: phase, pending count, tx-count"; "expect-tx operation".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import BarrierMisuse, Facts, Finding

MENDED = """
@kernel(arch="sm_90a")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0)
    grid(1)
    at = Shared[bf16, 2, 64, 64](swizzle=128)
    full = MBarrier[2](arrivals=1)
    free = MBarrier[2](arrivals=4)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warps=4):
        with one_thread():
            for j in range(ceil_div(K, 64)):
                s, parity = ring(j, 2)
                wait(free[s], parity ^ 1)
                expect_bytes(full[s], at[s])
                tma_load(at[s], a[0:+64, j * 64:+64], full[s])
    with role("mma", warpgroups=1):
        acc = zeros(f32, 64, 64, layout="wgmma")
        for j in range(ceil_div(K, 64)):
            s, parity = ring(j, 2)
            wait(full[s], parity)
            wgmma_fence()
            acc = wgmma(at[s], at[s], acc)
            wgmma_commit()
            wgmma_wait(0)
            arrive(free[s])
        store(c[0:+64, 0:+64], acc, vector=1)
"""


class EarlyArrival(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "this arrival on {barrier} may count for the phase before"
    help = "move it behind the wait that shows the phase before on {barrier} to be complete"
    cases = (
        Bad(
            "bytes are announced before the slot is released",
            """
@kernel(arch="sm_90a")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0)
    grid(1)
    at = Shared[bf16, 2, 64, 64](swizzle=128)
    full = MBarrier[2](arrivals=1)
    free = MBarrier[2](arrivals=4)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warps=4):
        with one_thread():
            for j in range(ceil_div(K, 64)):
                s, parity = ring(j, 2)
                expect_bytes(full[s], at[s])  #!
                wait(free[s], parity ^ 1)
                tma_load(at[s], a[0:+64, j * 64:+64], full[s])
    with role("mma", warpgroups=1):
        acc = zeros(f32, 64, 64, layout="wgmma")
        for j in range(ceil_div(K, 64)):
            s, parity = ring(j, 2)
            wait(full[s], parity)
            wgmma_fence()
            acc = wgmma(at[s], at[s], acc)
            wgmma_commit()
            wgmma_wait(0)
            arrive(free[s])
        store(c[0:+64, 0:+64], acc, vector=1)
""",
            fixed=MENDED,
            dims={"M": 64, "K": 320},
        ),
        Good("first the release, then the bytes", MENDED, dims={"M": 64, "K": 320}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, BarrierMisuse) and finding.kind == "unordered_arrival"

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in filter(self.claims, facts.of(BarrierMisuse)):
            yield self.report(found.span, "arrives here", barrier=found.slot.name)
