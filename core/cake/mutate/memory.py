"""Operators on memory and values: buffers, windows, swizzles, fills, vectors, contracts, accumulators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from cake.ir import nodes as n
from cake.ir.printer import expr_text
from cake.ir.rewrite import exchanged, spliced
from cake.ir.types import RegionType
from cake.mutate.counts import added, flipped
from cake.mutate.mutant import Edit, Operator
from cake.mutate.survey import Subject
from cake.mutate.synchronization import edited, name_of

SWIZZLES = (0, 32, 64, 128)
SCOPES: tuple[Literal["role", "warpgroup", "warp"], ...] = ("role", "warpgroup", "warp")
FILLS = (0.0, 1.0, float("-inf"))


def swapped(subject: Subject) -> Iterator[Edit]:
    """Another buffer, tensor or array of mbarriers of the same type stands at one place."""
    twins = _twins(subject)
    for spot in subject.spots():
        for outer in n.expressions(spot.stmt):
            for expr in n.walk_expr(outer):
                name = expr.base if isinstance(expr, n.Index) else expr.id if isinstance(expr, n.Name) else ""
                for other in twins.get(name, ()):
                    new: n.Expr = replace(expr, base=other) if isinstance(expr, n.Index) else n.Name(other)
                    assert not isinstance(expr, n.Range)
                    yield exchanged(subject.kernel, expr, new), f"{other} in place of {name}"


def _twins(subject: Subject) -> dict[str, list[str]]:
    kinds: dict[str, object] = {}
    for name, b in subject.instance.buffers.items():
        kinds[name] = (b.space, b.dtype, b.shape, b.swizzle, b.output)
    for name, barrier in subject.instance.barriers.items():
        kinds[name] = (barrier.count, barrier.indexed)
    return {name: [o for o, k in kinds.items() if o != name and k == kind] for name, kind in kinds.items()}


def swizzles(subject: Subject) -> Iterator[Edit]:
    """A shared buffer under another swizzle."""
    for stmt in subject.kernel.body:
        if isinstance(stmt, n.Shared):
            for span in SWIZZLES:
                new = replace(stmt, swizzle=n.Int(span) if span else None)
                yield edited(subject, {id(stmt): (new,)}), f"swizzle of {stmt.name} {span}"


def overlays(subject: Subject) -> Iterator[Edit]:
    """A shared buffer lies over the bytes of another that is declared before it and is as large."""
    buffers = subject.instance.buffers
    declared = [stmt for stmt in subject.kernel.body if isinstance(stmt, n.Shared)]
    for number, stmt in enumerate(declared):
        for below in declared[:number]:
            if stmt.overlay is None and buffers[stmt.name].bytes <= buffers[below.name].bytes:
                new = replace(stmt, overlay=n.Name(below.name))
                yield edited(subject, {id(stmt): (new,)}), f"{stmt.name} over {below.name}"


def fills(subject: Subject) -> Iterator[Edit]:
    """What lies outside is filled with another number."""
    for duty in subject.duties.values():
        for operand, expr in duty.given("float"):
            if isinstance(expr, n.Float | n.Int):
                for value in FILLS:
                    yield exchanged(subject.kernel, expr, n.Float(value)), f"{operand.name} {value}"


def widths(subject: Subject) -> Iterator[Edit]:
    """A vector access, or another compile-time number of a call on memory, twice or half as wide."""
    for duty in subject.duties.values():
        if duty.synchronizes or not duty.touches_memory:
            continue
        for operand, expr in duty.given("int"):
            value = operand.constant
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                for new in (2 * value, value // 2):
                    if new:
                        yield exchanged(subject.kernel, expr, n.Int(new)), f"{operand.name} {new}"


def contracts(subject: Subject) -> Iterator[Edit]:
    """A condition of the contract is gone: alignment, divisibility, capacity."""
    for stmt in subject.kernel.body:
        if isinstance(stmt, n.Require):
            for condition in stmt.conditions:
                kept = tuple(c for c in stmt.conditions if c is not condition)
                new = (replace(stmt, conditions=kept),) if kept else ()
                yield edited(subject, {id(stmt): new}), f"without the contract {expr_text(condition)}"


def offsets(subject: Subject) -> Iterator[Edit]:
    """A window begins one element, or a whole window, later; a plain index is one more."""
    windows = {
        id(o.expr): o.type
        for duty in subject.duties.values()
        for bound in duty.op.site.operands.values()
        for o in bound
    }
    for index in subject.indices():
        if not isinstance(windows.get(id(index)), RegionType):
            continue
        for item in index.items:
            starts = []
            if isinstance(item, n.Range):
                if item.start is not None and item.size is not None:
                    starts = [added(item.start, 1), n.Binary("+", item.start, item.size)]
                new: list[n.Expr | n.Range] = [replace(item, start=start) for start in starts]
            else:
                new = [added(item, 1)]
            for changed in new:
                words = f"{expr_text(changed)} in {expr_text(index)}"
                yield exchanged(subject.kernel, item, changed), words


def accumulation(subject: Subject) -> Iterator[Edit]:
    """A flag of an instruction that accumulates is inverted."""
    for duty in subject.duties.values():
        if not duty.primitive.in_place and not duty.seen("fragment"):
            continue
        for operand, expr in duty.given("int"):
            new = n.Unary("not", expr) if isinstance(expr, n.Compare | n.Logic) else flipped(expr)
            yield exchanged(subject.kernel, expr, new), f"{operand.name} inverted"


def stale(subject: Subject) -> Iterator[Edit]:
    """A fragment that a loop makes anew is made once, before the loop; or made anew in the next loop."""
    for spot, duty in subject.working():
        fresh = not duty.effects and not duty.given("fragment") and isinstance(spot.stmt, n.Assign)
        if not fresh:
            continue
        if spot.loops and spot.loops[-1] is spot.parents[-1]:
            loop = spot.loops[-1]
            edits = {id(spot.stmt): (), id(loop): (spot.stmt, loop)}
            yield edited(subject, edits), f"{name_of(spot.stmt)} only once"
        for loop in _loops_after(spot.block[spot.number + 1 :]):
            inner = replace(loop, body=(spot.stmt, *loop.body))
            yield edited(subject, {id(loop): (inner,)}), f"{name_of(spot.stmt)} in each pass"


def _loops_after(block: tuple[n.Stmt, ...]) -> list[n.For]:
    """The first loop among these statements, tasks looked into."""
    for stmt in block:
        if isinstance(stmt, n.For):
            return [stmt]
        if isinstance(stmt, n.Task) and (found := _loops_after(stmt.body)):
            return found
    return []


def peers(subject: Subject) -> Iterator[Edit]:
    """`remote(x, r)` is x of this CTA, or of the next CTA of the cluster."""
    size = n.Int(max(1, subject.instance.cluster))
    for spot in subject.spots():
        for outer in n.expressions(spot.stmt):
            for expr in n.walk_expr(outer):
                if isinstance(expr, n.Call) and expr.name == "remote" and len(expr.args) == 2:
                    what, rank = expr.args
                    yield exchanged(subject.kernel, expr, what), f"{expr_text(what)} of this CTA"
                    following = replace(expr, args=(what, n.Binary("%", added(rank, 1), size)))
                    yield exchanged(subject.kernel, expr, following), f"{expr_text(what)} of the next CTA"


def elections(subject: Subject) -> Iterator[Edit]:
    """Other threads execute what one thread did."""
    for spot in subject.spots():
        if isinstance(spot.stmt, n.OneThread):
            for scope in SCOPES:
                yield edited(subject, {id(spot.stmt): (replace(spot.stmt, scope=scope),)}), f"one a {scope}"
            yield edited(subject, {id(spot.stmt): spot.stmt.body}), "every thread"


def lost(subject: Subject) -> Iterator[Edit]:
    """A copy, load or store is gone."""
    for spot, duty in subject.working():
        if duty.touches_memory and isinstance(spot.stmt, n.Do):
            body = spliced(subject.kernel.body, {id(spot.stmt): ()})
            yield replace(subject.kernel, body=body), f"{name_of(spot.stmt)} is gone"


MEMORY = (
    Operator("swap-buffer", "another buffer of the same type stands at one place", swapped),
    Operator("swizzle", "a shared buffer has another swizzle", swizzles),
    Operator("overlay", "a shared buffer lies over another", overlays),
    Operator("fill", "what lies outside reads as another number", fills),
    Operator("width", "an access is twice or half as wide", widths),
    Operator("contract", "a condition of the contract is gone", contracts),
    Operator("offset", "a window begins elsewhere", offsets),
    Operator("accumulate", "an accumulation flag is inverted", accumulation),
    Operator("stale-fragment", "a fragment is made anew too seldom or too often", stale),
    Operator("peer", "a place in another CTA is in this one, or in the next", peers),
    Operator("election", "other threads execute a one-thread block", elections),
    Operator("drop-access", "a copy, load or store is gone", lost),
)
