"""Bytes of a bulk load are used before it is known to be complete

Finds
    Shared memory that a `tma_load` writes is read or written without a `wait` on its mbarrier, or with the
    wrong parity or the wrong slot.

Why
    The copy engine writes any time until the phase of its mbarrier completes; only a wait for that phase
    shows it.

Mend
    Wait on the mbarrier that the load names, with the parity of the current pass (`s, parity = ring(j,
    n)`).

Silent when
    The copy is a cp.async (sync/shallow-cp-async-wait).

Source
    PTX ISA, "cp.async.bulk.tensor", "mbarrier.try_wait".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Race

MENDED = """
@kernel(arch="sm_90a")
def one(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 8, 64](swizzle=128)
    bar = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(bar)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(bar, s)
            tma_load(s, x[0:+8, 0:+64], bar)
        wait(bar, 0)
        with one_thread():
            tma_store(y[0:+8, 0:+64], s)
            bulk_commit()
            bulk_wait_read(0)
"""


class UnawaitedTmaLoad(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "`{later}` uses {buffer} before the bytes of `{earlier}` are known to have arrived"
    help = (
        "wait on the mbarrier of the load in line {line}, with the parity of this pass, before "
        "this instruction"
    )
    cases = (
        Bad(
            "the consumer does not wait",
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
                tma_load(at[s], a[0:+64, j * 64:+64], full[s])  #> still be writing
    with role("mma", warpgroups=1):
        acc = zeros(f32, 64, 64, layout="wgmma")
        for j in range(ceil_div(K, 64)):
            s, parity = ring(j, 2)
            wgmma_fence()
            acc = wgmma(at[s], at[s], acc)  #!
            wgmma_commit()
            wgmma_wait(0)
            arrive(free[s])
        store(c[0:+64, 0:+64], acc, vector=1)
""",
            fixed="""
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
""",
            dims={"M": 64, "K": 320},
        ),
        Bad(
            "the store does not wait",
            """
@kernel(arch="sm_90a")
def one(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 8, 64](swizzle=128)
    bar = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(bar)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(bar, s)
            tma_load(s, x[0:+8, 0:+64], bar)
        with one_thread():
            tma_store(y[0:+8, 0:+64], s)  #!
            bulk_commit()
            bulk_wait_read(0)
""",
            fixed=MENDED,
            dims={"M": 8, "N": 64},
        ),
        Good("waited for", MENDED, dims={"M": 8, "N": 64}),
    )

    def claims(self, finding: Finding) -> bool:
        match finding:
            case Race(earlier=earlier, later=later, cause="incomplete"):
                return earlier.asynchronous_write and not later.asynchronous_write
        return False

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for race in filter(self.claims, facts.of(Race)):
            earlier, later = race.earlier, race.later
            yield self.report(
                later.span,
                "used here",
                secondary=((earlier.span, "may still be writing"),),
                buffer=later.buffer.name,
                earlier=earlier.primitive,
                later=later.primitive,
                line=earlier.span.line,
            )
