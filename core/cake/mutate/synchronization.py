"""Operators on synchronization: fences, waits, arrivals, commits and meetings lost, moved, doubled, weakened.

What synchronizes is read off the effects seen (survey.py), so an instruction added later is mutated too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cake.ir import nodes as n
from cake.ir.rewrite import Block, Spot, exchanged, spliced
from cake.kinds.primitive import Op, Primitive
from cake.machine import effects as fx
from cake.mutate.mutant import Edit, Operator
from cake.mutate.survey import Duty, Subject


def edited(subject: Subject, edits: Mapping[int, Block]) -> n.Kernel:
    """The kernel with statements replaced by `id`."""
    return replace(subject.kernel, body=spliced(subject.kernel.body, edits))


def name_of(stmt: n.Stmt) -> str:
    """What a call statement calls."""
    call = stmt.call if isinstance(stmt, n.Do) else stmt.value if isinstance(stmt, n.Assign) else None
    return call.name if isinstance(call, n.Call) else type(stmt).__name__.lower()


# --- lost and doubled -------------------------------------------------------------------------------------


def undrained(subject: Subject) -> Iterator[Edit]:
    """The last wait for a group in a role, outside loops: what is in flight at exit stays so."""
    last: dict[str, Spot] = {}
    for spot, duty in subject.synchronizing():
        if fx.WaitGroup in duty.effects and not spot.loops and spot.role is not None:
            last[spot.role.name] = spot
    for role, spot in last.items():
        yield edited(subject, {id(spot.stmt): ()}), f"{role} ends without {name_of(spot.stmt)}"


def dropped(subject: Subject) -> Iterator[Edit]:
    """One synchronization is gone."""
    for spot, _ in subject.synchronizing():
        yield edited(subject, {id(spot.stmt): ()}), f"{name_of(spot.stmt)} is gone"


def doubled(subject: Subject) -> Iterator[Edit]:
    """One synchronization is executed twice."""
    for spot, _ in subject.synchronizing():
        yield edited(subject, {id(spot.stmt): (spot.stmt, spot.stmt)}), f"{name_of(spot.stmt)} twice"


# --- moved ------------------------------------------------------------------------------------------------


def earlier(subject: Subject) -> Iterator[Edit]:
    """One synchronization comes before the statement it followed."""
    for spot, _ in subject.synchronizing():
        if spot.before is not None:
            edits = {id(spot.stmt): (), id(spot.before): (spot.stmt, spot.before)}
            yield edited(subject, edits), f"{name_of(spot.stmt)} before {name_of(spot.before)}"


def later(subject: Subject) -> Iterator[Edit]:
    """One synchronization comes after the statement that followed it."""
    for spot, _ in subject.synchronizing():
        if spot.after is not None:
            edits = {id(spot.stmt): (), id(spot.after): (spot.after, spot.stmt)}
            yield edited(subject, edits), f"{name_of(spot.stmt)} after {name_of(spot.after)}"


def to_start(subject: Subject) -> Iterator[Edit]:
    """An arrival comes first in its block: what it releases is still in use."""
    for spot, duty in subject.synchronizing():
        if duty.seen("slot") is not None and spot.number > 1 and not _awaits(duty):
            edits = {id(spot.stmt): (), id(spot.block[0]): (spot.stmt, spot.block[0])}
            yield edited(subject, edits), f"{name_of(spot.stmt)} first in its block"
            earliest = _after_definitions(spot)
            if 0 < earliest < spot.number - 1:
                anchor = spot.block[earliest]
                edits = {id(spot.stmt): (), id(anchor): (spot.stmt, anchor)}
                yield edited(subject, edits), f"{name_of(spot.stmt)} as early as its operands allow"


def to_end(subject: Subject) -> Iterator[Edit]:
    """A wait comes last in its block: after what it was to hold back."""
    for spot, duty in subject.synchronizing():
        if _awaits(duty) and spot.number + 2 < len(spot.block):
            edits = {id(spot.stmt): (), id(spot.block[-1]): (spot.block[-1], spot.stmt)}
            yield edited(subject, edits), f"{name_of(spot.stmt)} last in its block"


def out_of(subject: Subject) -> Iterator[Edit]:
    """One synchronization leaves the loop, branch or election it stands in, to its front or its end."""
    for spot, _ in subject.synchronizing():
        if not spot.parents or isinstance(spot.parents[-1], n.Role | n.Task):
            continue
        outer = spot.parents[-1]
        what = type(outer).__name__.lower()
        front = {id(spot.stmt): (), id(outer): (spot.stmt, outer)}
        yield edited(subject, front), f"{name_of(spot.stmt)} before its {what}"
        behind = {id(spot.stmt): (), id(outer): (outer, spot.stmt)}
        yield edited(subject, behind), f"{name_of(spot.stmt)} after its {what}"


def into(subject: Subject) -> Iterator[Edit]:
    """One synchronization enters the loop, branch or election beside it."""
    for spot, _ in subject.synchronizing():
        for neighbour, at_end in ((spot.after, False), (spot.before, True)):
            if not isinstance(neighbour, n.For | n.If | n.OneThread):
                continue
            body = (*neighbour.body, spot.stmt) if at_end else (spot.stmt, *neighbour.body)
            edits = {id(spot.stmt): (), id(neighbour): (replace(neighbour, body=body),)}
            what = type(neighbour).__name__.lower()
            yield edited(subject, edits), f"{name_of(spot.stmt)} inside the {what} beside it"


def _awaits(duty: Duty) -> bool:
    return duty.seen("parity") is not None or duty.seen("pending") is not None


def _after_definitions(spot: Spot) -> int:
    """The first number in the block at which every name that the statement uses is assigned."""
    used = {e.id for x in n.expressions(spot.stmt) for e in n.walk_expr(x) if isinstance(e, n.Name)}
    place = 0
    for number, stmt in enumerate(spot.block[: spot.number]):
        if isinstance(stmt, n.Assign) and used & set(stmt.targets):
            place = number + 1
    return place


# --- weakened ---------------------------------------------------------------------------------------------


def shallower(subject: Subject) -> Iterator[Edit]:
    """A wait leaves one group more in flight."""
    for spot, duty in subject.synchronizing():
        if duty.seen("pending") is None:
            continue
        for _, expr in duty.given("int"):
            more = n.Int(expr.value + 1) if isinstance(expr, n.Int) else n.Binary("+", expr, n.Int(1))
            yield exchanged(subject.kernel, expr, more), f"{name_of(spot.stmt)} leaves one more in flight"


def exchanged_for_weaker(subject: Subject) -> Iterator[Edit]:
    """Another instruction with the same operands that orders less, or other things."""
    for spot, duty in subject.synchronizing():
        call = duty.op.site.call
        for name, primitive in subject.primitives.items():
            if name != call.name and _replaces(primitive, duty):
                effects = _effects(primitive, name, duty)
                if effects and _orders_less(duty.effects, effects):
                    stands = exchanged(subject.kernel, call, replace(call, name=name))
                    yield stands, f"{name} in place of {name_of(spot.stmt)}"


def _replaces(primitive: Primitive, duty: Duty) -> bool:
    """Whether the call's operands fit, one thread issues both or neither, and no result is wanted."""
    mine = [(p.kinds, p.variadic) for p in duty.primitive.parameters]
    other = [(p.kinds, p.variadic) for p in primitive.parameters]
    return mine == other and primitive.single == duty.primitive.single and not duty.op.site.call.keywords


def _effects(primitive: Primitive, name: str, duty: Duty) -> Sequence[Any]:
    """What `primitive` would do with the call's operands; nothing where it cannot say."""
    names = {p.name: q.name for p, q in zip(duty.primitive.parameters, primitive.parameters, strict=True)}
    site = duty.op.site
    operands = {names[key]: value for key, value in site.operands.items()}
    args = {names[key]: value for key, value in duty.op.args.items()}
    call = replace(site.call, name=name)
    op = Op(replace(site, call=call, operands=operands), args, duty.op.warp)
    try:
        return primitive.effects(op)
    except Exception:  # a plugin's code on operands it was not written for
        return ()


def _orders_less(mine: Mapping[type, Any], other: Sequence[Any]) -> bool:
    """Not the same, not a meeting in place of none, not an mbarrier's first day, and not more of the same."""
    for effect in other:
        if isinstance(effect, fx.Read | fx.Write | fx.Async | fx.InitBarrier):
            return False
        if isinstance(effect, fx.Rendezvous) and fx.Rendezvous not in mine:
            return False
    if set(map(type, other)) == set(mine):
        own = [mine[type(effect)] for effect in other]
        if own == list(other):
            return False
        if len(own) == 1 and isinstance(own[0], fx.WaitGroup) and own[0].reads_only:
            return bool(own[0].group != other[0].group)
    return True


SYNCHRONIZATION = (
    Operator("no-drain", "the last wait of a role for what is in flight is gone", undrained),
    Operator("drop-sync", "a synchronization is gone", dropped),
    Operator("double-sync", "a synchronization is executed twice", doubled),
    Operator("sync-earlier", "a synchronization moves before its neighbour", earlier),
    Operator("sync-later", "a synchronization moves after its neighbour", later),
    Operator("early-release", "an arrival moves up in its block", to_start),
    Operator("late-wait", "a wait moves to the end of its block", to_end),
    Operator("sync-out", "a synchronization leaves its loop, branch or election", out_of),
    Operator("sync-into", "a synchronization enters the loop, branch or election beside it", into),
    Operator("shallow-wait", "a wait leaves one more group in flight", shallower),
    Operator("weaker-sync", "a synchronization is exchanged for one that orders less", exchanged_for_weaker),
)
