"""The tensor cores take over registers that were just written

Finds
    A `wgmma` accumulates into registers that ordinary instructions wrote, without `wgmma_fence()` in
    between.

Why
    Register writes and the asynchronous unit are not ordered by themselves.

Mend
    `wgmma_fence()` by all warps of the warpgroup before the first wgmma and after each ordinary write to
    its accumulator.

Silent when
    The registers were last written by a wgmma of the same shape.

Source
    PTX ISA, "wgmma.fence".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule, insertion
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


class UnfencedAccumulator(Rule):
    family = "sync"
    archs = "sm_90a"
    message = "`wgmma` accumulates into registers written in line {line} without a fence"
    help = "add wgmma_fence() before this wgmma"
    cases = (
        Bad(
            "zeros, then wgmma",
            """
@kernel(arch="sm_90a")
def square(y: GlobalOut[f32, M, N]):
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("tile", warpgroups=1):
        stmatrix(s[:, :], cast(zeros(f32, 64, 64, layout="wgmma"), bf16))
        fence_async()
        named_sync(1, warps=4)
        acc = zeros(f32, 64, 64, layout="wgmma")  #> written here
        acc = wgmma(s, s, acc)  #!
        wgmma_commit()
        wgmma_wait(0)
        store(y[0:+64, 0:+64], acc, vector=1)
""",
            fixed=MENDED,
            dims={"M": 64, "N": 64},
        ),
        Good("fenced", MENDED, dims={"M": 64, "N": 64}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, FragmentHazard) and finding.kind == "unfenced"

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in filter(self.claims, facts.of(FragmentHazard)):
            yield self.report(
                found.span,
                "handed to the tensor cores",
                secondary=((found.producer, "written here"),),
                line=found.producer.line,
                fix=insertion(facts, found.span, "wgmma_fence()", behind=False),
            )
