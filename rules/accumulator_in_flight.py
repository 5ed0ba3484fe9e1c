"""An accumulator is read while the tensor cores still write it

Finds
    Registers that a `wgmma` accumulates into are used by another instruction before a `wgmma_wait` covers
    its group.

Why
    wgmma is asynchronous; until the wait the registers hold anything between the old and the new values.

Mend
    `wgmma_commit()`, then `wgmma_wait(n)` with n less than the groups committed since.

Silent when
    The next wgmma accumulates into the same registers: the hardware chains them.

Source
    PTX ISA, "wgmma.mma_async", "wgmma.wait_group".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, FragmentHazard

MENDED = """
@kernel(arch="sm_90a")
def square(y: GlobalOut[f32, M, N]):
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("tile", warpgroups=1):
        stmatrix(s[:, :], cast(zeros(f32, 64, 64, layout="wgmma"), bf16))
        fence_async()
        named_sync(1, warps=4)
        acc = zeros(f32, 64, 64, layout="wgmma")
        wgmma_fence()
        acc = wgmma(s, s, acc)
        wgmma_commit()
        wgmma_wait(0)
        store(y[0:+64, 0:+64], acc, vector=1)
"""


class AccumulatorInFlight(Rule):
    family = "sync"
    archs = "sm_90a"
    message = "an accumulator is used before the wgmma in line {line} is known to be complete"
    help = "call wgmma_commit() and wgmma_wait(0) before this instruction"
    cases = (
        Bad(
            "no wait before the store",
            """
@kernel(arch="sm_90a")
def square(y: GlobalOut[f32, M, N]):
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("tile", warpgroups=1):
        stmatrix(s[:, :], cast(zeros(f32, 64, 64, layout="wgmma"), bf16))
        fence_async()
        named_sync(1, warps=4)
        acc = zeros(f32, 64, 64, layout="wgmma")
        wgmma_fence()
        acc = wgmma(s, s, acc)  #> still be accumulating
        wgmma_commit()
        store(y[0:+64, 0:+64], acc, vector=1)  #!
""",
            fixed=MENDED,
            dims={"M": 64, "N": 64},
        ),
        Good("waited for", MENDED, dims={"M": 64, "N": 64}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, FragmentHazard) and finding.kind == "in_flight"

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in filter(self.claims, facts.of(FragmentHazard)):
            yield self.report(
                found.span,
                "used here",
                secondary=((found.producer, "may still be accumulating"),),
                line=found.producer.line,
            )
