"""a second setmaxnreg before the warpgroup has met

Finds
    A warpgroup changes its register budget again, and not all of its warps are known to have made the change
    before.

Why
    The warps of a warpgroup execute setmaxnreg each at its own time. "After executing a setmaxnreg
    instruction, all warps in the warpgroup must synchronize explicitly before executing subsequent
    setmaxnreg instructions."

Mend
    Let the four warps meet between the two, or change the budget once.

Silent when
    A rendezvous or an mbarrier phase orders all four changes before the next one.

Source
    PTX ISA, "setmaxnreg".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, RegisterStep

MENDED = """
@kernel(arch="sm_90a")
def budget(y: GlobalOut[f32, N]):
    grid(1)
    with role("load", warpgroups=1):
        setmaxnreg_dec(96)
        named_sync(1, warps=4)
        setmaxnreg_dec(40)
"""


class UnsyncedRegisterChange(Rule):
    family = "sync"
    archs = "sm_90a|sm_100a|sm_120a"
    message = "the warpgroup changes its registers again before all of its warps have made the change before"
    help = "named_sync(1, warps=4) between the two, with a barrier of its own for each warpgroup"
    cases = (
        Bad(
            "twice in a row",
            """
@kernel(arch="sm_90a")
def budget(y: GlobalOut[f32, N]):
    grid(1)
    with role("load", warpgroups=1):
        setmaxnreg_dec(96)  #> the change before
        setmaxnreg_dec(40)  #!
""",
            fixed=MENDED,
            dims={"N": 1},
        ),
        Good("the warps meet in between", MENDED, dims={"N": 1}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, RegisterStep) and finding.kind == "unsynced"

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in facts.of(RegisterStep):
            if found.kind == "unsynced" and found.earlier is not None:
                yield self.report(
                    found.span, "changes again", secondary=((found.earlier, "the change before"),)
                )
