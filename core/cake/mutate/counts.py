"""Operators on numbers: arrivals, participants, parities, bytes, ring depths, stages, trips, registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cake.ir import nodes as n
from cake.ir.printer import expr_text
from cake.ir.rewrite import exchanged
from cake.machine import effects as fx
from cake.mutate.mutant import Edit, Operator
from cake.mutate.survey import Subject
from cake.mutate.synchronization import edited, name_of


def added(expr: n.Expr, amount: int) -> n.Expr:
    """`expr + amount`, folded into a literal."""
    if isinstance(expr, n.Int):
        return n.Int(expr.value + amount)
    if isinstance(expr, n.Binary) and expr.op in ("+", "-") and isinstance(expr.right, n.Int):
        total = (expr.right.value if expr.op == "+" else -expr.right.value) + amount
        if total == 0:
            return expr.left
        return n.Binary("+" if total > 0 else "-", expr.left, n.Int(abs(total)))
    return n.Binary("+" if amount > 0 else "-", expr, n.Int(abs(amount)))


def flipped(expr: n.Expr) -> n.Expr:
    """`expr ^ 1`; of `e ^ 1`, e."""
    match expr:
        case n.Binary(op="^", left=left, right=n.Int(value=1)):
            return left
        case n.Int(value=value):
            return n.Int(value ^ 1)
    return n.Binary("^", expr, n.Int(1))


def _by(subject: Subject, expr: n.Expr, amounts: tuple[int, ...], what: str) -> Iterator[Edit]:
    for amount in amounts:
        yield exchanged(subject.kernel, expr, added(expr, amount)), f"{what} {amount:+d}"


# --- synchronization --------------------------------------------------------------------------------------


def arrivals(subject: Subject) -> Iterator[Edit]:
    """An mbarrier waits for one arrival more or less."""
    for stmt in subject.kernel.body:
        if isinstance(stmt, n.MBarrier):
            yield from _by(subject, stmt.arrivals, (1, -1), f"arrivals of {stmt.name}")


def participants(subject: Subject) -> Iterator[Edit]:
    """A meeting of another number of warps, or at another barrier."""
    for spot, duty in subject.synchronizing():
        if duty.seen("id") is not None:
            for operand, expr in duty.given("int"):
                yield from _by(subject, expr, (1, -1), f"{operand.name} of {name_of(spot.stmt)}")


def parities(subject: Subject) -> Iterator[Edit]:
    """A wait for the other parity."""
    for spot, duty in subject.synchronizing():
        if duty.seen("parity") is not None:
            for _, expr in duty.given("int"):
                flip = exchanged(subject.kernel, expr, flipped(expr))
                yield flip, f"the other parity of {name_of(spot.stmt)}"


def expected(subject: Subject) -> Iterator[Edit]:
    """Other bytes are announced than come: a window less, a window twice, or another number."""
    for spot, duty in subject.synchronizing():
        arrival = duty.effects.get(fx.Arrive)
        if arrival is None or not arrival.expect_bytes:
            continue
        call, name = duty.op.site.call, name_of(spot.stmt)
        windows = [expr for _, expr in duty.given("shared") if not isinstance(expr, n.Int)]
        for window in windows:
            if len(windows) > 1:
                fewer = replace(call, args=tuple(a for a in call.args if a is not window))
                yield exchanged(subject.kernel, call, fewer), f"{name} without {expr_text(window)}"
            more = replace(call, args=(*call.args, window))
            yield exchanged(subject.kernel, call, more), f"{name} with {expr_text(window)} twice"
        for _, expr in duty.given("int"):
            if expr not in windows:
                yield from _by(subject, expr, (16, -16), f"bytes of {name}")


def registers(subject: Subject) -> Iterator[Edit]:
    """A register budget 8 larger or smaller."""
    for spot, duty in subject.synchronizing():
        if duty.seen("grow") is not None:
            for _, expr in duty.given("int"):
                yield from _by(subject, expr, (8, -8), f"registers of {name_of(spot.stmt)}")


# --- rings ------------------------------------------------------------------------------------------------


def _depths(subject: Subject) -> dict[str, n.Expr]:
    """Per shared buffer and array of mbarriers, the extent of its first axis."""
    out: dict[str, n.Expr] = {}
    for stmt in subject.kernel.body:
        if isinstance(stmt, n.Shared) and len(stmt.shape) > 1:
            out[stmt.name] = stmt.shape[0]
        elif isinstance(stmt, n.MBarrier) and stmt.count is not None:
            out[stmt.name] = stmt.count
    return out


def stages(subject: Subject) -> Iterator[Edit]:
    """One access goes to the next stage of its ring."""
    depths = _depths(subject)
    for index in subject.indices():
        first = index.items[0]
        if index.base in depths and not isinstance(first, n.Range):
            following = n.Binary("%", added(first, 1), depths[index.base])
            changed = replace(index, items=(following, *index.items[1:]))
            yield exchanged(subject.kernel, index, changed), f"the stage of {expr_text(index)} +1"


def capacities(subject: Subject) -> Iterator[Edit]:
    """A ring one stage shorter where it is declared, or where its step is turned into a stage."""
    depths = _depths(subject)
    for name, extent in depths.items():
        yield from _by(subject, extent, (-1,), f"stages of {name}")
    periods = list(depths.values())
    for spot in subject.spots():
        for outer in n.expressions(spot.stmt):
            for expr in n.walk_expr(outer):
                match expr:
                    case n.Call(name="ring", args=(_, size)) | n.Binary(op="%", right=size) if (
                        size in periods
                    ):
                        yield from _by(subject, size, (-1,), f"the period in {expr_text(expr)}")


# --- control ----------------------------------------------------------------------------------------------


def trips(subject: Subject) -> Iterator[Edit]:
    """A loop that ends a pass earlier or later, or begins a pass later."""
    for spot in subject.spots():
        if isinstance(spot.stmt, n.For):
            yield from _by(subject, spot.stmt.stop, (1, -1), f"the end of the loop over {spot.stmt.variable}")
            late = exchanged(subject.kernel, spot.stmt, replace(spot.stmt, start=added(spot.stmt.start, 1)))
            yield late, f"the begin of the loop over {spot.stmt.variable} +1"


def counters(subject: Subject) -> Iterator[Edit]:
    """`x += e` left out, or executed twice."""
    for spot in subject.spots():
        match spot.stmt:
            case n.Assign(targets=(name,), value=n.Binary(op="+", left=n.Name(id=same))) if name == same:
                yield edited(subject, {id(spot.stmt): ()}), f"{name} is not advanced"
                yield edited(subject, {id(spot.stmt): (spot.stmt, spot.stmt)}), f"{name} advances twice"


def guards(subject: Subject) -> Iterator[Edit]:
    """A branch that is always taken, or a comparison off by its boundary."""
    edges = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
    for spot in subject.spots():
        if not isinstance(spot.stmt, n.If):
            continue
        yield edited(subject, {id(spot.stmt): spot.stmt.body}), "the branch is always taken"
        for expr in n.walk_expr(spot.stmt.condition):
            if isinstance(expr, n.Compare):
                edge = replace(expr, op=edges[expr.op])  # type: ignore[arg-type]
                yield exchanged(subject.kernel, expr, edge), f"{edge.op} in {expr_text(expr)}"


def sizes(subject: Subject) -> Iterator[Edit]:
    """A role with one warp or warpgroup more or less, a cluster with one CTA more or less."""
    for stmt in subject.kernel.body:
        if isinstance(stmt, n.Role):
            yield from _by(subject, stmt.warps, (1, -1), f"the size of {stmt.name}")
        elif isinstance(stmt, n.Cluster):
            yield from _by(subject, stmt.size, (1, -1), "the size of the cluster")


COUNTS = (
    Operator("arrivals", "an mbarrier counts one arrival more or less", arrivals),
    Operator("participants", "a meeting's warps or barrier are off by one", participants),
    Operator("parity", "a wait is for the other parity", parities),
    Operator("expected-bytes", "other bytes are announced than come", expected),
    Operator("registers", "a register budget is off by 8", registers),
    Operator("stage", "an access goes to the next stage", stages),
    Operator("ring-capacity", "a ring is a stage shorter at one place", capacities),
    Operator("trips", "a loop is off by one pass", trips),
    Operator("counter", "a counter stands still or runs double", counters),
    Operator("guard", "a branch's condition is off", guards),
    Operator("size", "a role or cluster is larger or smaller by one", sizes),
)
