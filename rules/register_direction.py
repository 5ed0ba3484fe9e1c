"""setmaxnreg goes the other way than it says

Finds
    setmaxnreg_inc to fewer registers than the warpgroup has, or setmaxnreg_dec to more.

Why
    .inc asks the CTA's pool for registers and .dec gives some back, each from the present budget to the one
    named. The PTX ISA gives no meaning to an increase to fewer or a decrease to more: registers that are in
    use may go, or the pool gets what nobody gave.

Mend
    Name the direction that the budget takes from its present value. At launch that is 65,536 over the CTA's
    threads, rounded down to a multiple of 8; less where the largest increase in the kernel asks for less,
    because the compiler then gives no more from the start.

Silent when
    The budget stays the same.

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
        setmaxnreg_dec(40)
    with role("mma", warpgroups=2):
        setmaxnreg_inc(232)
"""


class RegisterDirection(Rule):
    family = "res"
    archs = "sm_90a|sm_100a|sm_120a"
    message = "the warpgroup has {present} registers a thread: {requested} is {words}"
    help = "name the direction that the budget takes"
    cases = (
        Bad(
            "an increase to fewer",
            """
@kernel(arch="sm_90a")
def budget(y: GlobalOut[f32, N]):
    grid(1)
    with role("load", warpgroups=1):
        setmaxnreg_inc(40)  #!
    with role("mma", warpgroups=2):
        setmaxnreg_inc(232)
""",
            fixed=MENDED,
            dims={"N": 1},
        ),
        Bad(
            "a decrease to more",
            """
@kernel(arch="sm_90a")
def budget(y: GlobalOut[f32, N]):
    grid(1)
    with role("load", warpgroups=1):
        setmaxnreg_dec(40)
    with role("mma", warpgroups=2):
        setmaxnreg_dec(232)  #!
""",
            fixed=MENDED,
            dims={"N": 1},
        ),
        Good("each its way", MENDED, dims={"N": 1}),
        Good(
            "no more at launch than the increase asks for",
            """
@kernel(arch="sm_90a")
def budget(y: GlobalOut[f32, N]):
    grid(1)
    with role("load", warpgroups=1):
        setmaxnreg_dec(40)
    with role("mma", warpgroups=1):
        setmaxnreg_inc(232)
""",
            dims={"N": 1},
        ),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, RegisterStep) and finding.kind == "direction"

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in facts.of(RegisterStep):
            if found.kind == "direction":
                fewer = found.requested < found.present
                yield self.report(
                    found.span,
                    "undefined",
                    present=found.present,
                    requested=found.requested,
                    words="no increase" if fewer else "no decrease",
                    help=f"setmaxnreg_{'dec' if fewer else 'inc'}({found.requested})",
                )
