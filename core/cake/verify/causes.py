"""One cause, one error: findings that follow from another finding, or repeat it elsewhere, are left out."""

from __future__ import annotations

from collections.abc import Sequence

from cake.machine import facts as ft


def root_causes(findings: Sequence[ft.Finding]) -> list[ft.Finding]:
    """The findings without their consequences and repetitions, in the same order."""
    alone = _without_repetitions(findings)
    return [f for f in alone if not any(_explains(other, f) for other in alone if other is not f)]


def _without_repetitions(findings: Sequence[ft.Finding]) -> list[ft.Finding]:
    """Races of one kind between the same instructions of the same roles are one mistake: the first stays."""
    out: list[ft.Finding] = []
    seen: set[object] = set()
    for finding in findings:
        if isinstance(finding, ft.Race):
            a, b = finding.earlier, finding.later
            kind = (finding.cause, a.primitive, b.primitive, a.role, b.role, a.buffer.space)
            if kind in seen:
                continue
            seen.add(kind)
        out.append(finding)
    return out


def _explains(cause: ft.Finding, effect: ft.Finding) -> bool:
    """Whether `effect` is what one expects after `cause`."""
    match effect:
        case ft.Deadlock():
            return not isinstance(cause, ft.Deadlock | ft.UninitializedRead | ft.Undrained)
        case ft.UninitializedRead(access=access):
            if isinstance(cause, ft.OutOfBounds):
                return cause.buffer.name == access.buffer.name
            return isinstance(cause, ft.Race) and access.buffer.name == cause.earlier.buffer.name
        case ft.Race():
            return _explains_race(cause, effect)
        case ft.Undrained(span=span):
            match cause:
                case ft.FragmentHazard(kind="in_flight", producer=producer):
                    return producer == span
                case ft.Race(earlier=earlier, later=later):
                    return span in (earlier.span, later.span)
        case ft.BarrierMisuse(kind="unconsumed"):
            return not isinstance(cause, ft.UninitializedRead) and cause != effect
    return False


def _explains_race(cause: ft.Finding, race: ft.Race) -> bool:
    earlier, later = race.earlier, race.later
    match cause:
        case ft.FragmentHazard(kind="in_flight", producer=producer):
            return producer in (earlier.span, later.span)
        case ft.BarrierMisuse(kind="uninitialized" | "init_unordered"):
            return True
        case ft.Race() if cause.earlier.buffer.name == earlier.buffer.name:
            if _consumes_unfinished(cause):
                # Who does not wait for a copy also releases its bytes too soon.
                return not _consumes_unfinished(race)
            if (cause.later.span, cause.earlier.span) == (earlier.span, later.span):
                return _better(cause, race)
            return cause.later.span == later.span and _rank(cause) < _rank(race)
    return False


def _consumes_unfinished(race: ft.Race) -> bool:
    """A copy's bytes are read before it is known to be complete."""
    return race.cause == "incomplete" and race.earlier.write and not race.later.write


def _better(cause: ft.Race, mirror: ft.Race) -> bool:
    """Of a race and its mirror image, which to show: a known kind of incompleteness, then the later read."""
    if _rank(cause) != _rank(mirror):
        return _rank(cause) > _rank(mirror)
    return not cause.later.write and mirror.later.write


def _rank(race: ft.Race) -> int:
    """Of races at one instruction, the one to mend first: order, then completion, then the fence."""
    return ("unordered", "incomplete", "unfenced").index(race.cause)
