"""One cause, one error: findings that follow from another finding, or repeat it elsewhere, are left out.

Findings stand on levels; only one of a lower level explains another, so that no two explain each other away.
"""

from __future__ import annotations

from collections.abc import Sequence

from cake.machine import facts as ft
from cake.machine.effects import BarrierSlot

_LIFE_CYCLE = ("uninitialized", "reinitialized", "init_unordered")
_ONE_CAUSE = ("init_unfenced", "init_unordered", "unordered_arrival")
"""Misuses of several mbarriers that one edit mends."""
_RING_FAULTS = 3
"""The classes of races, up to this one, that leave nothing to be trusted in the ring they are in."""


def root_causes(facts: ft.Facts) -> list[ft.Finding]:
    """The findings without their consequences and repetitions, in the same order."""
    findings = _with_idle_waits(facts)
    kept = [f for f in findings if not any(_explains(other, f) for other in findings if other is not f)]
    return _without_repetitions(kept)


def _with_idle_waits(facts: ft.Facts) -> list[ft.Finding]:
    """A copy that is used too soon by a role that did wait on its mbarrier, but on the phase before the
    first: the wait is at fault. So is a wait for a slot's release that passes on a phase already known."""
    out: dict[ft.Finding, None] = {}
    # Where more warps arrive than are declared, phases pass by themselves.
    declared = facts.instance.barriers
    miscounted = {name for name, warps in facts.arrivers.items() if warps > declared[name].arrivals}
    for finding in facts.findings:
        if isinstance(finding, ft.Race) and finding.later.asynchronous_write:
            role, refill = finding.later.role, finding.later.span
            for (name, waiter), repeated in facts.repeated_waits.items():
                if waiter == role and repeated < refill and name not in miscounted:
                    out[ft.BarrierMisuse("repeated_wait", BarrierSlot(name, 0), repeated, refill)] = None
        if isinstance(finding, ft.Race) and isinstance(finding.earlier.completion, BarrierSlot):
            slot, later = finding.earlier.completion, finding.later
            wait = facts.idle_waits.get((slot.name, later.role))
            if wait is not None and not later.asynchronous_write:
                out[ft.BarrierMisuse("idle_wait", BarrierSlot(slot.name, 0), wait, later.span)] = None
        out[finding] = None
    return list(out)


def _without_repetitions(findings: Sequence[ft.Finding]) -> list[ft.Finding]:
    """Races of one kind between the same instructions of the same roles are one mistake: the first stays. So
    are the misuses of one kind of mbarriers."""
    out: list[ft.Finding] = []
    seen: set[object] = set()
    for finding in findings:
        kind: object = finding
        if isinstance(finding, ft.Race):
            a, b = finding.earlier, finding.later
            kind = (_race_class(finding), a.primitive, b.primitive, a.role, b.role, a.buffer.space)
        elif isinstance(finding, ft.BarrierMisuse):
            kind = (finding.kind, "" if finding.kind in _ONE_CAUSE else finding.slot.name)
        if kind not in seen:
            seen.add(kind)
            out.append(finding)
    return out


def _level(finding: ft.Finding) -> int:
    match finding:
        case ft.AbsentPeer(kind="unstarted" | "outside"):
            return -1
        case ft.OutOfBounds() | ft.Misaligned() | ft.RegisterPool() | ft.RegisterStep():
            return 0
        case ft.RendezvousMismatch() | ft.RunAhead():
            return 0
        case ft.BarrierMisuse(kind="unordered_arrival"):
            return 5
        case ft.BarrierMisuse(kind="overrun"):
            return 6
        case ft.BarrierMisuse(kind="unconsumed") | ft.UninitializedRead() | ft.Undrained(committed=True):
            return 7
        case ft.Displaced():
            return 7
        case ft.BarrierMisuse(kind=kind):
            return 0 if kind in _LIFE_CYCLE else 2
        case ft.TensorMisuse(kind=misuse):
            return 7 if misuse == "freed_in_use" else 0
        case ft.Transactions() | ft.Undrained():
            return 1
        case ft.Race():
            return 3
        case ft.FragmentHazard():
            return 4
        case ft.Deadlock():
            return 8
    return 9


def _explains(cause: ft.Finding, effect: ft.Finding) -> bool:
    """Whether `effect` is what one expects after `cause`."""
    if isinstance(cause, ft.Race) and isinstance(effect, ft.Race):
        return _race_explains(cause, effect)
    if _level(cause) >= _level(effect):
        return False
    if isinstance(cause, ft.Race) and isinstance(effect, ft.TensorMisuse):
        return cause.later.buffer.space == "tensor"
    if isinstance(effect, ft.Deadlock):
        return not isinstance(cause, ft.UninitializedRead | ft.Undrained | ft.Misaligned)
    match cause:
        case ft.BarrierMisuse(kind=kind, slot=slot):
            if kind == "repeated_wait" and isinstance(effect, ft.Race):
                return effect.later.span == cause.other
            if kind == "idle_wait" and isinstance(effect, ft.Race):
                return _completes_on(effect.earlier, slot) or _completes_on(effect.later, slot)
            return kind != "init_unfenced" and not isinstance(effect, ft.FragmentHazard)
        case ft.AbsentPeer():
            return isinstance(effect, ft.BarrierMisuse | ft.AbsentPeer)
        case ft.RendezvousMismatch() | ft.RunAhead():
            return isinstance(effect, ft.Race) and effect.cause == "unordered"
        case ft.OutOfBounds(buffer=buffer):
            return buffer.name in _buffers(effect)
        case ft.Transactions(slot=slot):
            return not isinstance(effect, ft.Race) or _completes_on(effect.earlier, slot)
        case ft.Undrained(group=group, committed=False):
            return _uncommitted_explains(group, effect)
        case ft.Race():
            return _race_explains_other(cause, effect)
        case ft.FragmentHazard(producer=producer):
            return isinstance(effect, ft.Undrained) and effect.span == producer
    return isinstance(effect, ft.BarrierMisuse) and effect.kind == "unconsumed"


def _uncommitted_explains(group: str, effect: ft.Finding) -> bool:
    match effect:
        case ft.Race(earlier=earlier):
            return earlier.completion == group
        case ft.FragmentHazard(kind="in_flight"):
            return group == "wgmma"
        case ft.Undrained(group=other):
            return other == group
    return isinstance(effect, ft.BarrierMisuse)


def _race_explains_other(race: ft.Race, effect: ft.Finding) -> bool:
    match effect:
        case ft.FragmentHazard(kind="in_flight", producer=producer):
            return producer == race.earlier.span
        case ft.UninitializedRead(access=access):
            return access.buffer.name in _names(race)
        case ft.Displaced(access=access, by=by):
            return bool(_names(race) & {access.buffer.name, by.buffer.name})
        case ft.Undrained(span=span):
            return span in (race.earlier.span, race.later.span)
    return isinstance(effect, ft.BarrierMisuse)


def _race_explains(cause: ft.Race, effect: ft.Race) -> bool:
    """Of races on one buffer, the one to mend first."""
    a, b = _race_class(cause), _race_class(effect)
    if not _names(cause) & _names(effect) or a >= b:
        return False
    if a <= _RING_FAULTS:
        return effect.cause != "unfenced"
    same = {cause.earlier.span, cause.later.span} == {effect.earlier.span, effect.later.span}
    if cause.cause == effect.cause == "unfenced" and cause.earlier.span == effect.earlier.span:
        return True
    return same or cause.later.span == effect.later.span or _parties(effect) <= _parties(cause)


def _race_class(race: ft.Race) -> int:
    """What to mend first: a copy used too soon, a slot that is filled twice, a slot released too soon or
    overtaken; then order, completion and fences, the flow of data before the reuse of space."""
    if race.cause in ("tensor_unfinished", "tensor_unfenced"):
        return 7 if race.cause == "tensor_unfinished" else 8
    earlier, later = race.earlier, race.later
    if race.cause == "incomplete" and earlier.write and not later.write:
        return 0
    if earlier.asynchronous_write and later.asynchronous_write:
        return 1
    if not earlier.write and earlier.asynchronous and later.asynchronous_write:
        return 2
    if race.cause == "overtaken":
        return 3 if earlier.asynchronous else 6
    if race.cause == "unordered":
        return 4 if earlier.write and not later.write else 5
    return 7 if race.cause == "incomplete" else 9 if later.write else 8


def _names(race: ft.Race) -> set[str]:
    """The buffer raced for; of overlays, both names of its bytes."""
    return {race.earlier.buffer.name, race.later.buffer.name}


def _parties(race: ft.Race) -> set[tuple[str, str]]:
    return {(a.role, a.primitive) for a in (race.earlier, race.later)}


def _completes_on(access: ft.Access, slot: BarrierSlot) -> bool:
    return isinstance(access.completion, BarrierSlot) and access.completion.name == slot.name


def _buffers(finding: ft.Finding) -> tuple[str, ...]:
    match finding:
        case ft.Race(earlier=access) | ft.UninitializedRead(access=access) | ft.Displaced(access=access):
            return (access.buffer.name,)
    return ()
