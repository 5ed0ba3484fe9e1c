"""An mbarrier counts other arrivals than its roles make

Finds
    A wait that stays unanswered because some of the phase's arrivals came and the rest never do; an arrival
    on a phase that has all its arrivals.

Why
    A phase completes with the declared number of arrivals, neither before nor without the last one.
    `arrive` outside `one_thread()` is one arrival of each executing warp, inside it one arrival in all;
    `expect_bytes` is one, too.

Mend
    Declare what is made: `MBarrier(arrivals=n)` with n the arriving warps and threads of one phase.

Silent when
    No arrival of the phase came (sync/phase-deadlock), or the arriving role ended
    (sync/role-trip-mismatch).

Source
    PTX ISA, "mbarrier: pending count"; "mbarrier.arrive".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic, Span
from cake.ir import nodes as n
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import BarrierMisuse, Deadlock, Facts, Finding
from cake_plugins.rules._ring import barrier_of, partly

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


class ArrivalCount(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "{barrier} counts {declared} arrivals a phase, and {made}"
    help = "declare MBarrier(arrivals=n) with n the arrivals that one phase of {barrier} gets"
    cases = (
        Bad(
            "more declared than made",
            """
@kernel(arch="sm_90a")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0)
    grid(1)
    at = Shared[bf16, 2, 64, 64](swizzle=128)
    full = MBarrier[2](arrivals=1)
    free = MBarrier[2](arrivals=5)  #!
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
            arrive(free[s])  #> arrives
        store(c[0:+64, 0:+64], acc, vector=1)
""",
            fixed=MENDED,
            dims={"M": 64, "K": 320},
        ),
        Bad(
            "bytes are announced and arrived for",
            """
@kernel(arch="sm_90a")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0)
    grid(1)
    at = Shared[bf16, 2, 64, 64](swizzle=128)
    full = MBarrier[2](arrivals=1)  #!
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
                arrive(full[s])  #> one too many
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
        Good("declared as made", MENDED, dims={"M": 64, "K": 320}),
    )

    def claims(self, finding: Finding) -> bool:
        if isinstance(finding, BarrierMisuse):
            return finding.kind == "too_many_arrivals"
        return isinstance(finding, Deadlock) and partly(finding)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for deadlock in filter(self.claims, facts.of(Deadlock)):
            first = deadlock.blocked[0]
            assert first.slot is not None
            made = f"{first.arrivals - first.pending} come"
            others = ((first.span, f"role {first.role} waits for ever"), *_arrivals(facts, first.slot.name))
            yield self._counted(facts, first.slot.name, first.span, made, others)
        for misuse in filter(self.claims, facts.of(BarrierMisuse)):
            others = ((misuse.span, "one too many"),)
            yield self._counted(facts, misuse.slot.name, misuse.span, "more come", others)

    def _counted(
        self, facts: Facts, name: str, span: Span, made: str, others: tuple[tuple[Span, str], ...]
    ) -> Diagnostic:
        for stmt in facts.instance.kernel.body:
            if isinstance(stmt, n.MBarrier) and stmt.name == name:
                span = stmt.arrivals.span
        declared = facts.instance.barriers[name].arrivals
        return self.report(span, "counted here", secondary=others, barrier=name, declared=declared, made=made)


def _arrivals(facts: Facts, name: str) -> list[tuple[Span, str]]:
    calls = n.calls(facts.instance.kernel.body)
    return [(c.span, "arrives") for c in calls if c.name == "arrive" and barrier_of(c) == name]
