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
    (sync/wrong-transaction-bytes); some arrivals came (sync/arrival-count);
    the register pool (res/register-budget).

Source
    PTX ISA, "mbarrier: phase and parity".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cake.diagnostics import Diagnostic
from cake.ir import nodes as n
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Blocked, Deadlock, Facts, Finding
from cake_plugins.rules._ring import barrier_name, barrier_of, partly, places

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
    help = "{mend}"
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
        Good("every phase completes", MENDED, dims={"M": 64, "K": 320}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, Deadlock) and not finding.starved and not partly(finding)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in filter(self.claims, facts.of(Deadlock)):
            deadlock = _likely_first(facts, found)
            first = deadlock.blocked[0]
            yield self.report(
                first.span,
                f"waits for {first.waits_for}",
                secondary=places(deadlock),
                path=(f"at {first.iteration}",) if first.iteration else (),
                role=first.role,
                barrier=barrier_name(first),
                mend=_mend(facts, first),
            )


def _arrived_on(facts: Facts, blocked: Blocked) -> list[str]:
    """The names of the calls in the kernel's text that arrive on what is waited for."""
    name = blocked.slot.name if blocked.slot else ""
    calls = n.calls(facts.instance.kernel.body)
    return [c.name for c in calls if c.name in ("arrive", "expect_bytes") and barrier_of(c) == name]


def _likely_first(facts: Facts, deadlock: Deadlock) -> Deadlock:
    """With the wait in front that nothing in the text answers, or one for a release, not for data."""

    def doubt(blocked: Blocked) -> int:
        arrivals = _arrived_on(facts, blocked)
        return 0 if blocked.slot is None or not arrivals else 1 + ("expect_bytes" in arrivals)

    return replace(deadlock, blocked=tuple(sorted(deadlock.blocked, key=doubt)))


def _mend(facts: Facts, blocked: Blocked) -> str:
    if blocked.slot is None:
        return "let exactly the warps that the barrier counts come to it, each as often as the others"
    name = blocked.slot.name
    if not _arrived_on(facts, blocked):
        return f"nothing arrives on {name}: add arrive({name}[...]) where its phase is done"
    if blocked.needed == 1:
        return (
            f"in the first round nobody has arrived on {name} yet: a wait for a release starts at parity 1 "
            "(parity ^ 1), a wait for data needs its producer to start"
        )
    return f"follow slot index and parity of {name} round by round: both roles count from 0 and step alike"
