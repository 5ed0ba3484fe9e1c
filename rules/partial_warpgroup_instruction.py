"""Some warps of a warpgroup stay away from an instruction that needs all four

Finds
    `wgmma`, its fences, commits and waits, or setmaxnreg, executed by some warps of a warpgroup and not by
    the others, or not equally often.

Why
    These instructions are `.sync.aligned` over the warpgroup: the hardware waits for, or computes with, warps
    that never come.

Mend
    Take the instruction out of the branch that depends on `warp`; branch on `warpgroup` instead.

Silent when
    The branch depends on `warpgroup` or on values that all four warps share.

Source
    PTX ISA, "wgmma.mma_async", "setmaxnreg": all threads in the warpgroup must execute the same instruction.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, PartialWarpgroup

MENDED = """
@kernel(arch="sm_90a")
def budget(y: GlobalOut[f32, N]):
    grid(1)
    with role("load", warpgroups=1):
        if warpgroup == 0:
            setmaxnreg_dec(40)
"""


class PartialWarpgroupInstruction(Rule):
    family = "sync"
    archs = "sm_90a|sm_100a|sm_120a"
    message = "not every warp of a warpgroup of role {role} executes `{instruction}`"
    help = (
        "take `{instruction}` out of the branch on `warp`: all four warps of a warpgroup execute it together"
    )
    cases = (
        Bad(
            "a budget set by one warp",
            """
@kernel(arch="sm_90a")
def budget(y: GlobalOut[f32, N]):
    grid(1)
    with role("load", warpgroups=1):
        if warp == 0:
            setmaxnreg_dec(40)  #!
""",
            fixed=MENDED,
            dims={"N": 1},
        ),
        Good("by the warpgroup", MENDED, dims={"N": 1}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, PartialWarpgroup)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in facts.of(PartialWarpgroup):
            yield self.report(
                found.span, "some warps stay away", role=found.role, instruction=found.primitive
            )
