"""A CTA-wide barrier stands where not every warp comes

Finds
    `cta_sync()` inside one of several roles, or under a branch whose condition differs between warps.

Why
    Barrier 0 counts all threads of the CTA. Warps of other roles never come, or come at another
    instruction.

Mend
    `named_sync(id, warps=n)` for the warps of one role; `cta_sync()` before the roles part.

Silent when
    The only role is the whole CTA.

Source
    PTX ISA, "barrier.sync"; public reports of CTA barriers inside warp-specialized branches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cake.diagnostics import Diagnostic, Span
from cake.ir import nodes as n
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts

MENDED = """
@kernel(arch="sm_80")
def meet(y: GlobalOut[f32, N]):
    grid(1)
    cta_sync()
    with role("a", warps=1):
        i = 1
    with role("b", warps=1):
        i = 2
"""


class CtaSyncInRole(Rule):
    family = "sync"
    needs = "instance"
    message = "`cta_sync()` in {where}: not every warp of the CTA comes here"
    help = "use named_sync(id, warps=n) for the warps that do come"
    cases = (
        Bad(
            "inside a role",
            """
@kernel(arch="sm_80")
def meet(y: GlobalOut[f32, N]):
    grid(1)
    cta_sync()
    with role("a", warps=1):
        i = 1
    with role("b", warps=1):
        cta_sync()  #!
""",
            fixed=MENDED,
            dims={"N": 1},
        ),
        Good("before the roles part", MENDED, dims={"N": 1}),
    )

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        instance = facts.instance
        for role in instance.kernel.roles:
            if len(instance.roles) > 1:
                for span in _syncs(role.body):
                    yield self.report(span, "meets all warps", where=f"role {role.name}, one of several")
            else:
                for stmt in n.walk(role.body):
                    if isinstance(stmt, n.If) and _varies(stmt.condition):
                        for span in _syncs((*stmt.body, *stmt.orelse)):
                            yield self.report(span, "meets all warps", where="a branch on the warp")


def _syncs(body: tuple[n.Stmt, ...]) -> Iterator[Span]:
    return (call.span for call in n.calls(body) if call.name == "cta_sync")


def _varies(condition: n.Expr) -> bool:
    names = {e.id for e in n.walk_expr(condition) if isinstance(e, n.Name)}
    return bool(names & {"warp", "warpgroup"})
