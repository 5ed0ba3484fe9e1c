"""Roles disagree on how often they use a barrier

Finds
    A role waits for a phase, while every role that arrives on that mbarrier has ended: its loop made fewer
    trips.

Why
    Producer and consumer derive the same work list on their own; one off-by-one hangs the kernel, often
    only on certain shapes or on the zero-trip path.

Mend
    Let both roles loop over the same expression.

Silent when
    A role that could still arrive is itself waiting (sync/phase-deadlock).

Source
    Public reports: roles that disagree on trip counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Deadlock, Facts, Finding
from cake_plugins.rules._ring import barrier_name, partly, places

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


class RoleTripMismatch(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "role {role} waits on {barrier} once more than the other role arrives"
    help = "let both roles loop over the same bounds"
    cases = (
        Bad(
            "the consumer makes one trip more",
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
                wait(free[s], parity ^ 1)
                expect_bytes(full[s], at[s])  #> could let it go
                tma_load(at[s], a[0:+64, j * 64:+64], full[s])
    with role("mma", warpgroups=1):
        acc = zeros(f32, 64, 64, layout="wgmma")
        for j in range(ceil_div(K, 64) + 1):
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
        Good("the same bounds", MENDED, dims={"M": 64, "K": 320}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, Deadlock) and finding.starved and not partly(finding)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for deadlock in filter(self.claims, facts.of(Deadlock)):
            first = deadlock.blocked[0]
            yield self.report(
                first.span,
                f"waits for {first.waits_for}",
                secondary=places(deadlock),
                path=(f"at {first.iteration}",) if first.iteration else (),
                role=first.role,
                barrier=barrier_name(first),
            )
