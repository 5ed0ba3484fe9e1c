"""A wait is answered by a phase that is over

Finds
    The parity of a wait lets it pass before the first phase of an mbarrier is complete, and bytes that the
    mbarrier announces are used behind it; a wait for a slot's release passes on a phase that was over before;
    or nothing keeps the mbarrier from moving on before a waiter has looked.

Why
    `try_wait.parity(p)` passes while the phase before the current one has parity p. On a fresh mbarrier that
    is p = 1: right for a producer, whose slots are free at first, wrong for who waits for data. Whether it
    works depends on who comes first.

Mend
    Consumers wait at parity 0 first (`wait(full[s], parity)` with `s, parity = ring(j, STAGES)`), producers
    at 1 (`parity ^ 1`); every waiter arrives before the next phase can complete.

Silent when
    The wait hangs (sync/phase-deadlock), or is missing (sync/unawaited-tma-load).

Source
    PTX ISA, "mbarrier.test_wait / try_wait", phase parity.
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

STREAM = """
@kernel(arch="sm_90a")
def relay(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    go = MBarrier(arrivals=1)
    done = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(go)
        mbarrier_init(done)
        fence_mbarrier_init()
    cta_sync()
    with role("first", warps=1):
        for j in range(3):
            wait(done, j % 2 ^ 1)
            arrive(go)
    with role("second", warps=1):
        for j in range(3):
            wait(go, j % 2)
            arrive(done)
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
"""

SIGNAL = """
@kernel(arch="sm_90a")
def signal(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    go = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(go)
        fence_mbarrier_init()
    cta_sync()
    with role("give", warps=1):
        with one_thread():
            arrive(go)
    with role("take", warps=1):
        wait(go, 0)
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
"""


_WORDS = {
    "idle_wait": (
        "passes before any byte came",
        "used too soon",
        "wait at the other parity: 0 in the first round, as ring(...) yields it",
    ),
    "repeated_wait": (
        "waits for nothing new",
        "refilled too soon",
        "one mbarrier flips at each completion: take the parity from how often {barrier} has completed",
    ),
    "overrun": (
        "the mbarrier may be a phase ahead",
        "",
        "let whoever completes {barrier} wait until this role is past this wait",
    ),
}
"""By kind of finding: what is said at the wait, at the second place, and the mend."""


class WaitParity(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "this wait on {barrier} passes on a phase that is over"
    help = "{mend}"
    cases = (
        Bad(
            "the consumer waits at the producer's parity",
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
                expect_bytes(full[s], at[s])
                tma_load(at[s], a[0:+64, j * 64:+64], full[s])
    with role("mma", warpgroups=1):
        acc = zeros(f32, 64, 64, layout="wgmma")
        for j in range(ceil_div(K, 64)):
            s, parity = ring(j, 2)
            wait(full[s], parity ^ 1)  #!
            wgmma_fence()
            acc = wgmma(at[s], at[s], acc)  #> used too soon
            wgmma_commit()
            wgmma_wait(0)
            arrive(free[s])
        store(c[0:+64, 0:+64], acc, vector=1)
""",
            fixed=MENDED,
            dims={"M": 64, "K": 320},
        ),
        Bad(
            "nobody waits for the waiter",
            """
@kernel(arch="sm_90a")
def relay(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    go = MBarrier(arrivals=1)
    done = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(go)
        mbarrier_init(done)
        fence_mbarrier_init()
    cta_sync()
    with role("first", warps=1):
        for j in range(3):
            arrive(go)
    with role("second", warps=1):
        for j in range(3):
            wait(go, j % 2)  #!
            arrive(done)
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
""",
            fixed=STREAM,
            dims={"N": 32},
        ),
        Bad(
            "whoever looks late finds the next phase",
            """
@kernel(arch="sm_90a")
def signal(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    go = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(go)
        fence_mbarrier_init()
    cta_sync()
    with role("give", warps=1):
        with one_thread():
            arrive(go)
    with role("take", warps=1):
        wait(go, 1)  #!
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
""",
            fixed=SIGNAL,
            dims={"N": 32},
        ),
        Good("consumers at 0, producers at 1", MENDED, dims={"M": 64, "K": 320}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, BarrierMisuse) and finding.kind in _WORDS

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in filter(self.claims, facts.of(BarrierMisuse)):
            label, second, mend = _WORDS[found.kind]
            yield self.report(
                found.span,
                label,
                secondary=((found.other, second),) if second and found.other else (),
                barrier=found.slot.name,
                mend=mend.format(barrier=found.slot.name),
            )
