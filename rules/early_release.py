"""A slot is overwritten while the tensor cores still read it

Finds
    Bytes that a `wgmma` reads are written again although nothing shows that this wgmma has completed: the
    slot was released before `wgmma_wait`, or the wait leaves too many groups in flight, or not every reader
    arrives.

Why
    wgmma reads its operands any time between issue and the wait that covers its group. A release before
    that hands the producer bytes in use.

Mend
    Wait for the group (`wgmma_wait(0)`), or release the slot of the previous step after `wgmma_wait(1)`;
    count one arrival for each reading warp.

Silent when
    The reader is the copy engine (sync/staging-reuse).

Source
    PTX ISA, "wgmma.wait_group"; public reports of releases ahead of the wait.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic, Span
from cake.ir import nodes as n
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Race
from cake_plugins.rules._ring import barrier_of, before, calls_in

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


class EarlyRelease(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "`{later}` overwrites {buffer} while `{earlier}` may still read it"
    help = "{mend}"
    cases = (
        Bad(
            "the wait leaves one group in flight",
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
                tma_load(at[s], a[0:+64, j * 64:+64], full[s])  #> overwritten here
    with role("mma", warpgroups=1):
        acc = zeros(f32, 64, 64, layout="wgmma")
        for j in range(ceil_div(K, 64)):
            s, parity = ring(j, 2)
            wait(full[s], parity)
            wgmma_fence()
            acc = wgmma(at[s], at[s], acc)  #> still be reading
            wgmma_commit()
            wgmma_wait(1)
            arrive(free[s])  #!
        wgmma_wait(0)
        store(c[0:+64, 0:+64], acc, vector=1)
""",
            fixed=MENDED,
            dims={"M": 64, "K": 320},
        ),
        Bad(
            "fewer arrivals than reading warps",
            """
@kernel(arch="sm_90a")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0)
    grid(1)
    at = Shared[bf16, 2, 64, 64](swizzle=128)
    full = MBarrier[2](arrivals=1)
    free = MBarrier[2](arrivals=3)  #!
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
                tma_load(at[s], a[0:+64, j * 64:+64], full[s])  #> overwritten here
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
        Good("released after the wait", MENDED, dims={"M": 64, "K": 320}),
    )

    def claims(self, finding: Finding) -> bool:
        match finding:
            case Race(earlier=earlier, later=later, cause="incomplete" | "unordered"):
                return later.write and not earlier.write and earlier.completion == "wgmma"
        return False

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for race in filter(self.claims, facts.of(Race)):
            earlier, later = race.earlier, race.later
            place, label = _release(facts, race)
            others = [(earlier.span, "may still be reading"), (later.span, "overwritten here")]
            yield self.report(
                place,
                label,
                secondary=tuple(other for other in others if other[0] != place),
                buffer=later.buffer.name,
                earlier=earlier.primitive,
                later=later.primitive,
                mend=_mend(facts, race, place),
            )


def _mend(facts: Facts, race: Race, place: Span) -> str:
    line = race.earlier.span.line
    if race.cause == "unordered":
        return (
            f"let every warp that executes line {line} arrive after its wgmma_wait(...), and count them all"
        )
    wait = before(calls_in(facts, race.earlier.role, "wgmma_wait"), place)
    if wait is None or wait.span < race.earlier.span:
        return f"add wgmma_wait(0) after the commit of line {line}, before line {place.line}"
    return (
        f"let wgmma_wait(...) in line {wait.span.line} cover line {line}, or release the slot one step later"
    )


def _release(facts: Facts, race: Race) -> tuple[Span, str]:
    """What lets the writer go too soon: the arrival before completion, or the count that some readers'
    arrivals fill; the write itself where no mbarrier stands between."""
    awaited = {barrier_of(call) for call in calls_in(facts, race.later.role, "wait")}
    for call in calls_in(facts, race.earlier.role, "arrive"):
        if barrier_of(call) in awaited and call.span > race.earlier.span:
            if race.cause == "incomplete":
                return call.span, "released here"
            for stmt in facts.instance.kernel.body:
                if isinstance(stmt, n.MBarrier) and stmt.name == barrier_of(call):
                    return stmt.arrivals.span, "full before every reading warp arrived"
    return race.later.span, "overwritten here"
