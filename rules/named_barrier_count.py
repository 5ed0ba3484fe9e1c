"""Warps meet at a named barrier with different counts

Finds
    Two instructions use the same barrier id with different numbers of warps.

Why
    The hardware releases after the count of one of them; the other set is torn apart.

Mend
    One id, one set of warps, one count.

Silent when
    The count is never reached: that is a deadlock.

Source
    PTX ISA, "barrier.sync a, b".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, RendezvousMismatch

MENDED = """
@kernel(arch="sm_80")
def meet(y: GlobalOut[f32, N]):
    grid(1)
    with role("a", warps=2):
        named_sync(1, warps=4)
    with role("b", warps=2):
        named_sync(1, warps=4)
"""


class NamedBarrierCount(Rule):
    family = "sync"
    message = "barrier {id} is met with {one} warps here and {two} elsewhere"
    help = "give each set of warps its own id and the same count at each use"
    cases = (
        Bad(
            "four here, two there",
            """
@kernel(arch="sm_80")
def meet(y: GlobalOut[f32, N]):
    grid(1)
    with role("a", warps=2):
        named_sync(1, warps=4)  #> 4 warps
    with role("b", warps=2):
        named_sync(1, warps=2)  #!
""",
            fixed=MENDED,
            dims={"N": 1},
        ),
        Good("one count", MENDED, dims={"N": 1}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, RendezvousMismatch)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in facts.of(RendezvousMismatch):
            one, two = found.counts
            yield self.report(
                found.span,
                f"{one} warps",
                secondary=((found.other, f"{two} warps"),),
                id=found.id,
                one=one,
                two=two,
            )
