"""Warps meet at a named barrier with different counts, or more warps than it counts use it

Finds
    Two instructions use the same barrier id with different numbers of warps; or more warps execute
    instructions with one id than it counts.

Why
    The hardware releases as soon as the count has come, whoever came: sets of warps are torn apart.

Mend
    One id, one set of warps, one count.

Silent when
    The count is never reached (sync/phase-deadlock); the id depends on run-time values, or the instruction
    stands in a branch: then only what the machine sees counts.

Source
    PTX ISA, "barrier.sync a, b".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cake.diagnostics import Diagnostic, Span
from cake.ir import Instance
from cake.ir import nodes as n
from cake.ir.evaluate import EvaluationError, evaluate
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
    message = "barrier {id} is met with {one} warps here and {two}"
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
        Bad(
            "two sets of warps, one id",
            """
@kernel(arch="sm_80")
def meet(y: GlobalOut[f32, N]):
    grid(1)
    with role("a", warps=2):
        named_sync(1, warps=2)  #> used here first
    with role("b", warps=2):
        named_sync(1, warps=2)  #!
""",
            fixed="""
@kernel(arch="sm_80")
def meet(y: GlobalOut[f32, N]):
    grid(1)
    with role("a", warps=2):
        named_sync(1, warps=2)
    with role("b", warps=2):
        named_sync(2, warps=2)
""",
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
                two=f"{two} elsewhere",
            )
        if not any(True for _ in facts.of(RendezvousMismatch)):
            yield from self._crowded(facts.instance)

    def _crowded(self, instance: Instance) -> Iterator[Diagnostic]:
        users: dict[int, dict[int, Span]] = {}
        for role in instance.roles:
            for call in _unconditional(role.node.body):
                site = instance.site(call)
                for rank in range(role.warps):
                    env = {**instance.values, "warp": rank, "warpgroup": rank // 4}
                    try:
                        number = evaluate(call.args[0], env)
                    except (EvaluationError, IndexError):
                        continue
                    warps = users.setdefault(number, {})
                    warps.setdefault(role.first_warp + rank, call.span)
                    if len(warps) > site.integer("warps"):
                        first = next(iter(warps.values()))
                        yield self.report(
                            call.span,
                            "one warp more",
                            secondary=((first, "used here first"),) if first != call.span else (),
                            id=number,
                            one=site.integer("warps"),
                            two=f"executed by {len(warps)} and more",
                        )
                        return


def _unconditional(body: tuple[n.Stmt, ...]) -> Iterator[n.Call]:
    """The calls at named barriers outside branches."""
    for stmt in body:
        if isinstance(stmt, n.Do) and stmt.call.name in ("named_sync", "named_arrive"):
            yield stmt.call
        elif not isinstance(stmt, n.If):
            for inside in n.blocks_of(stmt):
                yield from _unconditional(inside)
