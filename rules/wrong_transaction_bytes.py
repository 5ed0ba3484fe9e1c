"""An mbarrier expects other bytes than the copies deliver

Finds
    In one phase, the bytes announced by `expect_bytes` differ from those of the copies that complete on the
    mbarrier.

Why
    The phase completes when the count of outstanding bytes is zero. Too many announced: it never completes.
    Too few: it completes early or underflows.

Mend
    Announce the windows themselves: `expect_bytes(full[s], at[s], bt[s])` counts whole boxes, zeros at the
    edge included.

Silent when
    The mbarrier has no copies at all.

Source
    PTX ISA, "mbarrier: tx-count", "expect_tx".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Transactions

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


class WrongTransactionBytes(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "{barrier} expects {expected} bytes in a phase, its copies deliver {delivered}"
    help = "announce the windows that are filled: expect_bytes({barrier}, ...) with each destination"
    cases = (
        Bad(
            "one byte short",
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
                expect_bytes(full[s], 8191)  #!
                tma_load(at[s], a[0:+64, j * 64:+64], full[s])  #> delivered here
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
        Good("the window itself", MENDED, dims={"M": 64, "K": 320}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, Transactions)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in facts.of(Transactions):
            places = [(span, "announced here") for span in found.expects]
            places += [(span, "delivered here") for span in found.copies]
            if places:
                (primary, label), *others = places
                yield self.report(
                    primary,
                    label,
                    secondary=tuple(others),
                    barrier=found.slot.name,
                    expected=found.expected,
                    delivered=found.delivered,
                )
