"""Two accesses to the same bytes of an output with nothing that orders them

Finds
    Two writes, or a write and a read, of the same elements of an output tensor by different warps of a CTA,
    not ordered by synchronization; writes of the same elements by two CTAs, which nothing orders.

Why
    The last write wins, and which is last is left to chance.

Mend
    Give each element to one writer, or let the warps meet between the accesses.

Silent when
    The CTAs are neither the first two nor the last: these are executed.

Source
    PTX ISA, "Memory Consistency Model".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Race


class GlobalRace(Rule):
    family = "sync"
    message = "`{later}` and `{earlier}` use the same elements of {buffer}, and nothing orders them"
    help = "give each element one writer, or synchronize after line {line}"
    cases = (
        Bad(
            "two warps write one tile",
            """
@kernel(arch="sm_80")
def twice(y: GlobalOut[f32, M, N]):
    grid(1)
    with role("tile", warps=2):
        acc = zeros(f32, 16, 8, layout="mma")
        store(y[0:+16, 0:+8], acc, vector=1)  #!
""",
            fixed="""
@kernel(arch="sm_80")
def twice(y: GlobalOut[f32, M, N]):
    grid(1)
    with role("tile", warps=2):
        acc = zeros(f32, 16, 8, layout="mma")
        store(y[warp * 16:+16, 0:+8], acc, vector=1)
""",
            dims={"M": 32, "N": 8},
        ),
        Bad(
            "two CTAs write one row",
            """
@kernel(arch="sm_80")
def twice(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    grid(M)
    with role("row", warps=1):
        store(y[0, :], load(x[block, :], vector=1, fill=0.0), vector=1)  #!
""",
            fixed="""
@kernel(arch="sm_80")
def twice(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    grid(M)
    with role("row", warps=1):
        store(y[block, :], load(x[block, :], vector=1, fill=0.0), vector=1)
""",
            dims={"M": 3, "N": 64},
        ),
        Good(
            "each warp has its rows",
            """
@kernel(arch="sm_80")
def once(y: GlobalOut[f32, M, N]):
    grid(1)
    with role("tile", warps=2):
        acc = zeros(f32, 16, 8, layout="mma")
        store(y[warp * 16:+16, 0:+8], acc, vector=1)
""",
            dims={"M": 32, "N": 8},
        ),
    )

    def claims(self, finding: Finding) -> bool:
        match finding:
            case Race(earlier=earlier, cause="unordered"):
                return earlier.buffer.space == "global" and earlier.proxy != "tensormap"
        return False

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for race in filter(self.claims, facts.of(Race)):
            earlier, later = race.earlier, race.later
            yield self.report(
                later.span,
                "this access",
                secondary=((earlier.span, _other(race)),),
                buffer=later.buffer.name,
                earlier=earlier.primitive,
                later=later.primitive,
                line=earlier.span.line,
                help="let each CTA write its own part of {buffer}" if race.blocks else None,
            )


def _other(race: Race) -> str:
    if race.blocks is None:
        return "and this one are not ordered"
    return f"of CTA {race.blocks[1]}, and this one, of CTA {race.blocks[0]}, are not ordered"
