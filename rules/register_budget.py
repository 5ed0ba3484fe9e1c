"""setmaxnreg asks for registers that the CTA does not have

Finds
    A warpgroup grows its budget beyond what the CTA's registers at launch and the other warpgroups'
    decreases leave.

Why
    A CTA starts with 65,536 registers over its threads, rounded down; growing waits until others have given
    some back. What never fits hangs.

Mend
    Lower the increase, or decrease the other roles first and further: the sum over warpgroups of 128 x
    budget must not pass 128 x the entry budget x warpgroups.

Silent when
    The budget fits but the code needs more (compile reports spills).

Source
    PTX ISA, "setmaxnreg".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, RegisterPool

MENDED = """
@kernel(arch="sm_90a")
def budget(y: GlobalOut[f32, N]):
    grid(1)
    with role("load", warpgroups=1):
        setmaxnreg_dec(40)
    with role("mma", warpgroups=2):
        setmaxnreg_inc(232)
"""


class RegisterBudget(Rule):
    family = "res"
    archs = "sm_90a|sm_100a|sm_120a"
    message = "{requested} registers a thread can never be granted: {available} are within reach"
    help = "lower this budget to {available} or give more back by setmaxnreg_dec(...) in the other roles"
    cases = (
        Bad(
            "no role decreases",
            """
@kernel(arch="sm_90a")
def budget(y: GlobalOut[f32, N]):
    grid(1)
    with role("load", warpgroups=1):
        pass
    with role("mma", warpgroups=2):
        setmaxnreg_inc(232)  #!
""",
            fixed=MENDED,
            dims={"N": 1},
        ),
        Bad(
            "more than the sum",
            """
@kernel(arch="sm_90a")
def budget(y: GlobalOut[f32, N]):
    grid(1)
    with role("load", warpgroups=1):
        setmaxnreg_dec(40)
    with role("mma", warpgroups=2):
        setmaxnreg_inc(240)  #!
""",
            fixed=MENDED,
            dims={"N": 1},
        ),
        Good("decrease, then increase", MENDED, dims={"N": 1}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, RegisterPool)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in facts.of(RegisterPool):
            yield self.report(
                found.span,
                "waits for ever",
                requested=found.requested,
                available=found.available // 8 * 8,
            )
