"""A warp uses an mbarrier that another initialized without a rendezvous

Finds
    A warp arrives on or waits for an mbarrier that another warp initialized, and no rendezvous lies in
    between.

Why
    The waiting warp may come first and find garbage.

Mend
    `cta_sync()` after the initializations and their fence.

Silent when
    The warp initialized it itself.

Source
    PTX ISA, "mbarrier.init".
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


KINDS = {"init_unordered": "no rendezvous"}
"""What the machine calls it, and how it is said."""


class UnsyncedMbarrierInit(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "{barrier} is used by a warp that need not see its initialization ({kind})"
    help = "add cta_sync() after fence_mbarrier_init()"
    cases = (
        Bad(
            "no rendezvous",
            """
@kernel(arch="sm_90a")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0)
    grid(1)
    at = Shared[bf16, 2, 64, 64](swizzle=128)
    full = MBarrier[2](arrivals=1)
    free = MBarrier[2](arrivals=4)
    with one_thread():
        mbarrier_init(full)  #> initialized here
        mbarrier_init(free)
        fence_mbarrier_init()
    pass
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
            wait(full[s], parity)  #!
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
        Good("all warps meet", MENDED, dims={"M": 64, "K": 320}),
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
            )
