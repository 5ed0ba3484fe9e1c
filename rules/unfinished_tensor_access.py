"""Tensor memory is touched while an operation on it may still be under way

Finds
    A load of an accumulator whose products are not known to be complete; a product or store into tensor
    memory that a load or store before it may not have left.

Why
    All operations on tensor memory are asynchronous. The registers of a load wait for their values by
    themselves, the columns they came from do not: released too soon, the next product overwrites what is
    still being read. It shows as rare wrong numbers.

Mend
    Commit the products to an mbarrier and wait for it before the load; `tcgen05_wait_ld()` before the
    slot is released; `tcgen05_wait_st()` before others are told of a store.

Silent when
    All is complete and only the fence is missing (sync/unfenced-tensor-access).

Source
    PTX ISA, "tcgen05 Memory Consistency Model": pipelined instructions, tcgen05.wait, tcgen05.commit.
    Reported for attention kernels in public (M04, M05).
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Race

HEAD = """
@kernel(arch="sm_100a")
def tiles(a: Global[bf16, M, K], c: GlobalOut[f32, 2, 128, 128]):
    require(M == 128, K == 64)
    grid(1)
    at = Shared[bf16, 128, 64](swizzle=128)
    t = TensorMemory[f32, 128, 128](column=0)
    full = MBarrier(arrivals=1)
    done = MBarrier(arrivals=1)
    empty = MBarrier(arrivals=4)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(done)
        mbarrier_init(empty)
        fence_mbarrier_init()
    if warp == 0:
        tcgen05_alloc(128)
        tcgen05_relinquish()
    cta_sync()
    with role("store", warpgroups=1):
        for i in range(2):
            WAIT
            tcgen05_fence_after()
            v = tcgen05_ld(t)
            DRAIN
            tcgen05_fence_before()
            arrive(empty)
            tcgen05_wait_ld()
            store(c[i, 0:+128, 0:+128], v, vector=4)
    with role("mma", warps=1):
        with one_thread():
            expect_bytes(full, at)
            tma_load(at, a[0:+128, 0:+64], full)
            wait(full, 0)
            for i in range(2):
                wait(empty, i & 1 ^ 1)
                tcgen05_fence_after()
                tcgen05_mma(t, at, at, accumulate=i < 0)
                tcgen05_commit(done)
    cta_sync()
    if warp == 0:
        tcgen05_dealloc(128)
"""
MENDED = HEAD.replace("WAIT", "wait(done, i & 1)").replace("DRAIN", "tcgen05_wait_ld()")
STORED = """
@kernel(arch="sm_100a")
def relay(y: GlobalOut[f32, M, N]):
    require(M == 128, N == 32)
    grid(1)
    t = TensorMemory[f32, 128, 32](column=0)
    if warp == 0:
        tcgen05_alloc(32)
    cta_sync()
    with role("first", warpgroups=1):
        tcgen05_st(t, zeros(f32, 128, 32, layout="tensor"))MARK
        WAIT
        tcgen05_fence_before()
        named_arrive(1, warps=8)
    with role("second", warpgroups=1):
        named_sync(1, warps=8)
        tcgen05_fence_after()
        v = tcgen05_ld(t)FAULT
        tcgen05_wait_ld()
        store(y[0:+128, 0:+32], v, vector=4)
    cta_sync()
    if warp == 0:
        tcgen05_dealloc(32)
"""


class UnfinishedTensorAccess(Rule):
    family = "sync"
    archs = "sm_100a"
    message = "`{later}` touches {buffer} while `{earlier}` may still be under way"
    help = "{mend}"
    cases = (
        Bad(
            "the slot is released before the load is complete",
            HEAD.replace("WAIT", "wait(done, i & 1)")
            .replace("            DRAIN\n", "")
            .replace("v = tcgen05_ld(t)", "v = tcgen05_ld(t)  #> may be under way")
            .replace("accumulate=i < 0)", "accumulate=i < 0)  #!"),
            fixed=MENDED,
            records=("M04",),
        ),
        Bad(
            "a store that is announced before it is complete",
            STORED.replace("        WAIT\n", "        i = 0\n")
            .replace("MARK", "  #> may be under way")
            .replace("FAULT", "  #!"),
            fixed=STORED.replace("WAIT", "tcgen05_wait_st()").replace("MARK", "").replace("FAULT", ""),
            records=("M05",),
        ),
        Good("waited for", MENDED),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, Race) and finding.cause == "tensor_unfinished"

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for race in filter(self.claims, facts.of(Race)):
            earlier, later = race.earlier, race.later
            mends = {
                "tcgen05_ld": "tcgen05_wait_ld() before the arrival that lets others overwrite it",
                "tcgen05_st": "tcgen05_wait_st() before others are told",
            }
            commit = "tcgen05_commit(bar) behind it, and wait(bar, parity) here"
            yield self.report(
                later.span,
                "touched here",
                secondary=((earlier.span, "may be under way"),) if earlier.span != later.span else (),
                later=later.primitive,
                earlier=earlier.primitive,
                buffer=later.buffer.name,
                mend=mends.get(earlier.primitive, commit),
            )
