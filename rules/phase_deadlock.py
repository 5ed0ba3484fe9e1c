"""Warps wait for a phase that nobody completes

Finds
    No warp can go on: each waits for an mbarrier phase or a rendezvous, and those who could complete it
    wait too or never try.

Why
    A missing arrival, a wrong parity, a wrong arrival count or a slot index that differs between roles
    leaves the wait unanswered; on the GPU the kernel hangs.

Mend
    Follow who waits for whom: producers start at parity 1 (`parity ^ 1`), consumers at 0; each phase needs
    exactly the declared arrivals.

Silent when
    The waiter expects more phases than the other role's loop makes (sync/role-trip-mismatch); byte counts
    (sync/wrong-transaction-bytes); the register pool (res/register-budget).

Source
    PTX ISA, "mbarrier: phase and parity".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Deadlock, Facts, Finding

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


class PhaseDeadlock(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "role {role} waits on {barrier} for ever"
    help = (
        "check parity (producers start at parity 1, consumers at 0), slot index and arrival count "
        "of {barrier}"
    )
    cases = (
        Bad(
            "nobody releases the slots",
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
                wait(free[s], parity ^ 1)  #!
                expect_bytes(full[s], at[s])
                tma_load(at[s], a[0:+64, j * 64:+64], full[s])
    with role("mma", warpgroups=1):
        acc = zeros(f32, 64, 64, layout="wgmma")
        for j in range(ceil_div(K, 64)):
            s, parity = ring(j, 2)
            wait(full[s], parity)  #> waits for
            wgmma_fence()
            acc = wgmma(at[s], at[s], acc)
            wgmma_commit()
            wgmma_wait(0)
        store(c[0:+64, 0:+64], acc, vector=1)
""",
            fixed=MENDED,
            dims={"M": 64, "K": 320},
        ),
        Bad(
            "the producer starts at the wrong parity",
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
                wait(free[s], parity)  #!
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
""",
            fixed=MENDED,
            dims={"M": 64, "K": 320},
        ),
        Bad(
            "more arrivals declared than made",
            """
@kernel(arch="sm_90a")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0)
    grid(1)
    at = Shared[bf16, 2, 64, 64](swizzle=128)
    full = MBarrier[2](arrivals=1)
    free = MBarrier[2](arrivals=5)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warps=4):
        with one_thread():
            for j in range(ceil_div(K, 64)):
                s, parity = ring(j, 2)
                wait(free[s], parity ^ 1)  #!
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
""",
            fixed=MENDED,
            dims={"M": 64, "K": 320},
        ),
        Good("every phase completes", MENDED, dims={"M": 64, "K": 320}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, Deadlock) and not finding.starved

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for deadlock in filter(self.claims, facts.of(Deadlock)):
            first, *others = deadlock.blocked
            signals = [(span, "this could let it go") for span in first.signallers]
            waits = [(b.span, f"role {b.role} waits for {b.waits_for}") for b in others]
            name = f"{first.slot.name}[{first.slot.index}]" if first.slot else "the rendezvous"
            yield self.report(
                first.span,
                f"waits for {first.waits_for}",
                secondary=(*waits, *signals),
                path=(f"at {first.iteration}",) if first.iteration else (),
                role=first.role,
                barrier=name,
            )
