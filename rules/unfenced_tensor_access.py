"""Tensor memory passes from thread to thread without its fences

Finds
    An operation on tensor memory that follows one of another thread by a barrier, without
    `tcgen05_fence_before()` in front of the arrival there or `tcgen05_fence_after()` behind the wait here.

Why
    Barriers do not order tcgen05 operations: those behind a wait may be carried out before it, those in front
    of an arrival after it. `tcgen05_commit` contains the fence before, a wait never the fence after.

Mend
    `tcgen05_fence_before()` between the operation (and its wait) and the arrival, `tcgen05_fence_after()`
    between the wait and the operation.

Silent when
    The operation before is not complete (sync/unfinished-tensor-access); products follow one another in one
    thread.

Source
    PTX ISA, "tcgen05.fence", "tcgen05 Memory Consistency Model".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule, insertion
from cake.machine.facts import Facts, Finding, Race

TILE = """
@kernel(arch="sm_100a")
def tile(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(M == 128, K == 64)
    grid(1)
    at = Shared[bf16, 128, 64](swizzle=128)
    t = TensorMemory[f32, 128, 128](column=0)
    full = MBarrier(arrivals=1)
    done = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(done)
        fence_mbarrier_init()
    if warp == 0:
        tcgen05_alloc(128)
        tcgen05_relinquish()
    cta_sync()
    with role("store", warpgroups=1):
        wait(done, 0)
        AFTER
        v = tcgen05_ld(t)MARK
        tcgen05_wait_ld()
        store(c[0:+128, 0:+128], v, vector=4)
    with role("mma", warps=1):
        with one_thread():
            expect_bytes(full, at)
            tma_load(at, a[0:+128, 0:+64], full)
            wait(full, 0)
            tcgen05_mma(t, at, at, accumulate=1 < 0)SECOND
            tcgen05_commit(done)
    cta_sync()
    if warp == 0:
        tcgen05_dealloc(128)
"""
MENDED = TILE.replace("AFTER", "tcgen05_fence_after()").replace("MARK", "").replace("SECOND", "")
RELAY = """
@kernel(arch="sm_100a")
def relay(y: GlobalOut[f32, M, N]):
    require(M == 128, N == 32)
    grid(1)
    t = TensorMemory[f32, 128, 32](column=0)
    if warp == 0:
        tcgen05_alloc(32)
    cta_sync()
    with role("first", warpgroups=1):
        tcgen05_st(t, zeros(f32, 128, 32, layout="tensor"))
        tcgen05_wait_st()
        BEFORE
        named_arrive(1, warps=8)
    with role("second", warpgroups=1):
        named_sync(1, warps=8)
        tcgen05_fence_after()
        v = tcgen05_ld(t)MARK
        tcgen05_wait_ld()
        store(y[0:+128, 0:+32], v, vector=4)
    cta_sync()
    if warp == 0:
        tcgen05_dealloc(32)
"""


class UnfencedTensorAccess(Rule):
    family = "sync"
    archs = "sm_100a"
    message = "`{later}` on {buffer} is not ordered behind `{earlier}`: a barrier is no tcgen05 fence"
    help = "{mend}"
    cases = (
        Bad(
            "no fence behind the wait for the products",
            TILE.replace("        AFTER\n", "").replace("MARK", "  #!").replace("SECOND", "  #> behind this"),
            fixed=MENDED,
        ),
        Bad(
            "no fence in front of the arrival",
            RELAY.replace("        BEFORE\n", "").replace("MARK", "  #!"),
            fixed=RELAY.replace("BEFORE", "tcgen05_fence_before()").replace("MARK", ""),
        ),
        Good("fenced on both sides", MENDED),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, Race) and finding.cause == "tensor_unfenced"

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for race in filter(self.claims, facts.of(Race)):
            earlier, later = race.earlier, race.later
            mend = "tcgen05_fence_after() behind the wait before it"
            fix = insertion(facts, later.span, "tcgen05_fence_after()", behind=False)
            if earlier.primitive in ("tcgen05_ld", "tcgen05_st"):
                fix = ()
                mend = f"tcgen05_fence_before() behind the wait after line {earlier.span.line}, {mend}"
            yield self.report(
                later.span,
                "may be carried out too early",
                secondary=((earlier.span, "behind this"),) if earlier.span != later.span else (),
                later=later.primitive,
                earlier=earlier.primitive,
                buffer=later.buffer.name,
                mend=mend,
                fix=fix,
            )
