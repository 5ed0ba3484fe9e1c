"""A role's fragments need more registers than setmaxnreg leaves it

Finds
    A place in a role at which the fragments whose values are still needed take more registers a thread than
    the budget that `setmaxnreg_dec` or `setmaxnreg_inc` set before it.

Why
    The budget is a promise to the assembler: it spills what does not fit, or ignores setmaxnreg altogether
    (ptxas C7507), and the registers that another role waits for never come.

Mend
    Raise the budget above the fragments and some twenty registers for addresses, spread the tile over more
    warps, or finish with one fragment before the next is made.

Silent when
    The role has no budget of its own: the compiler reports its spills (`cake build`).

Source
    PTX ISA, "setmaxnreg"; ptxas C7507.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cake.diagnostics import Diagnostic
from cake.ir import Instance
from cake.ir import nodes as n
from cake.ir.types import FragmentType
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts

SPARE = 24
"""Registers that addresses and counters take beside the fragments."""
KERNEL = """
@kernel(arch="sm_90a")
def budget(y: GlobalOut[f32, M, N]):
    grid(1)
    with role("load", warpgroups=1):
        setmaxnreg_dec(40)
    with role("tile", warpgroups=2):
        setmaxnreg_{change}({count}){marked}
        acc = zeros(f32, 64, 192, layout="wgmma")
        other = zeros(f32, 64, 128, layout="wgmma"){second}
        for i in range(4):
            acc = acc + 1.0
            other = other + 2.0
        store(y[warpgroup * 64:+64, 0:+192], acc, vector=2)
        store(y[warpgroup * 64:+64, 192:+128], other, vector=2)
"""


class FragmentsOverBudget(Rule):
    family = "res"
    needs = "instance"
    archs = "sm_90a|sm_100a|sm_120a"
    message = "fragments take {words} registers a thread at once, the role has {budget}"
    help = "a budget of {enough} or more, a smaller tile, or fewer fragments at once"
    cases = (
        Bad(
            "two accumulators in a budget for one",
            KERNEL.format(change="dec", count=144, marked="  #!", second="  #> needed at once"),
            fixed=KERNEL.format(change="inc", count=208, marked="", second=""),
            dims={"M": 128, "N": 320},
        ),
        Good(
            "room for both",
            KERNEL.format(change="inc", count=216, marked="", second=""),
            dims={"M": 128, "N": 320},
        ),
    )

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for role in facts.instance.roles:
            needs = Needs(facts.instance)
            needs.block(role.node.body, frozenset())
            for change, stmts in _stretches(role.node.body):
                budget = facts.instance.site(change).operand("count").constant
                most = max(stmts, key=lambda stmt: needs.words.get(id(stmt), 0), default=None)
                words = 0 if most is None else needs.words.get(id(most), 0)
                if most is not None and isinstance(budget, int) and words > budget:
                    yield self.report(
                        change.span,
                        "set here",
                        secondary=((most.span, "needed at once"),),
                        words=words,
                        budget=budget,
                        enough=(words + SPARE) // 8 * 8,
                    )


def _stretches(body: tuple[n.Stmt, ...]) -> Iterator[tuple[n.Call, list[n.Stmt]]]:
    """Each change of the budget with the statements that follow it in the text, up to the next."""
    found: list[tuple[n.Call, list[n.Stmt]]] = []
    for stmt in n.walk(body):
        if isinstance(stmt, n.Do) and stmt.call.name.startswith("setmaxnreg"):
            found.append((stmt.call, []))
        elif found:
            found[-1][1].append(stmt)
    yield from found


@dataclass(slots=True)
class Needs:
    """Which fragments are needed after each statement, going backwards, and the most `words` that those of a
    statement take: what it reads and makes, and what later ones still read."""

    instance: Instance
    words: dict[int, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def block(self, body: tuple[n.Stmt, ...], after: frozenset[str]) -> frozenset[str]:
        """The names that are needed before `body`."""
        for stmt in reversed(body):
            after = self.stmt(stmt, after)
        return after

    def stmt(self, stmt: n.Stmt, after: frozenset[str]) -> frozenset[str]:
        match stmt:
            case n.For(body=body):
                # What a pass needs at its start, the one before must leave: twice is enough.
                needed = self.block(body, after)
                return after | self.block(body, after | needed)
            case n.If(body=body, orelse=orelse):
                return self.block(body, after) | self.block(orelse, after)
            case n.OneThread(body=body) | n.Task(body=body):
                return self.block(body, after)
        read, made = frozenset(self._read(stmt)), frozenset(self._made(stmt))
        before = (after - made) | read
        held = max(sum(self.sizes[name] for name in names) for names in (before, after | made))
        self.words[id(stmt)] = max(held, self.words.get(id(stmt), 0))
        return before

    def _made(self, stmt: n.Stmt) -> Iterator[str]:
        if isinstance(stmt, n.Assign) and len(stmt.targets) == 1:
            kind = self.instance.types.get(id(stmt.value))
            if isinstance(kind, FragmentType):
                self.sizes[stmt.targets[0]] = _words(kind)
                yield stmt.targets[0]

    def _read(self, stmt: n.Stmt) -> Iterator[str]:
        for expr in n.expressions(stmt):
            for node in n.walk_expr(expr):
                kind = self.instance.types.get(id(node))
                if isinstance(node, n.Name) and isinstance(kind, FragmentType):
                    self.sizes[node.id] = _words(kind)
                    yield node.id


def _words(kind: FragmentType) -> int:
    """Registers of 32 bits that a thread holds of a fragment."""
    return -(-kind.registers * kind.dtype.bytes // 4)
