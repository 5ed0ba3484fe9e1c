"""One cause, one error: findings that follow from another finding are left out."""

from __future__ import annotations

from collections.abc import Sequence

from cake.machine import facts as ft


def root_causes(findings: Sequence[ft.Finding]) -> list[ft.Finding]:
    """The findings without their consequences, in the same order."""
    return [f for f in findings if not any(_explains(other, f) for other in findings if other is not f)]


def _explains(cause: ft.Finding, effect: ft.Finding) -> bool:
    """Whether `effect` is what one expects after `cause`."""
    match effect:
        case ft.Deadlock():
            return not isinstance(cause, ft.Deadlock | ft.UninitializedRead | ft.Undrained)
        case ft.UninitializedRead(access=access):
            return isinstance(cause, ft.Race) and access.buffer.name == cause.earlier.buffer.name
        case ft.Race(earlier=earlier, later=later):
            match cause:
                case ft.FragmentHazard(kind="in_flight", producer=producer):
                    return producer in (earlier.span, later.span)
                case ft.BarrierMisuse(kind="uninitialized"):
                    return True
                case ft.Race():
                    return cause.later.span == later.span and _rank(cause) < _rank(effect)
        case ft.Undrained(span=span):
            match cause:
                case ft.FragmentHazard(kind="in_flight", producer=producer):
                    return producer == span
                case ft.Race(earlier=earlier, later=later):
                    return span in (earlier.span, later.span)
        case ft.BarrierMisuse(kind="unconsumed"):
            return not isinstance(cause, ft.BarrierMisuse | ft.UninitializedRead)
    return False


def _rank(race: ft.Race) -> int:
    """Of races at one instruction, the one to mend first: order, then completion, then the fence."""
    return ("unordered", "incomplete", "unfenced").index(race.cause)
