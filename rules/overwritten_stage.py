"""A slot is filled again before its reader is done with it

Finds
    A TMA load into shared memory that an earlier load of the ring filled, with nothing that shows the bytes
    consumed: the producer does not wait for the slot's release, or the release comes from too few readers.

Why
    The copy engine writes at once. A reader that waited for its phase then sees the bytes of a later one.

Mend
    `wait(free[s], parity ^ 1)` before the load, on an mbarrier at which every reading warp arrives after its
    last read of the slot.

Silent when
    A wgmma known to be in flight is overtaken (sync/early-release), or the reader never waited
    (sync/unawaited-tma-load).

Source
    PTX ISA, "cp.async.bulk.tensor", "mbarrier"; public reports of rings without an empty barrier.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Access, Facts, Finding, Race
from cake_plugins.rules._ring import barrier_of, calls_in

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


class OverwrittenStage(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "`{load}` fills {buffer} again while its bytes may still be in use"
    help = "{mend}"
    cases = (
        Bad(
            "the producer waits for nobody",
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
                expect_bytes(full[s], at[s])
                tma_load(at[s], a[0:+64, j * 64:+64], full[s])  #!
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
            "two of four warps release the slot",
            """
@kernel(arch="sm_90a")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0)
    grid(1)
    at = Shared[bf16, 2, 64, 64](swizzle=128)
    full = MBarrier[2](arrivals=1)
    free = MBarrier[2](arrivals=2)
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
                tma_load(at[s], a[0:+64, j * 64:+64], full[s])  #!
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
        Good("each slot is released", MENDED, dims={"M": 64, "K": 320}),
    )

    def claims(self, finding: Finding) -> bool:
        match finding:
            case Race(earlier=earlier, later=later, cause=cause):
                if cause == "overtaken":
                    return earlier.asynchronous_write
                reused = not earlier.write and earlier.asynchronous
                ring = later.buffer.space != "tensor" and cause != "unfenced"
                return later.asynchronous_write and ring and not reused
        return False

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for race in filter(self.claims, facts.of(Race)):
            load, other = race.earlier, race.later
            if race.cause != "overtaken":
                load, other = other, load
            yield self.report(
                load.span,
                "filled again",
                secondary=((other.span, "in use by this"),) if other.span != load.span else (),
                buffer=load.buffer.name,
                load=load.primitive,
                mend=_mend(facts, load),
            )


def _mend(facts: Facts, load: Access) -> str:
    waits = [call for call in calls_in(facts, load.role, "wait") if call.span < load.span]
    if waits:
        name = barrier_of(waits[-1])
        readers = f"every warp that reads {load.buffer.name}"
        return f"let {readers} arrive on {name} after its last read, and count them all"
    return f"before line {load.span.line}, wait for the slot's release: wait(free[s], parity ^ 1)"
