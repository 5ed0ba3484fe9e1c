"""Findings that no rule speaks for, said plainly: nothing the machine saw is passed over in silence."""

from __future__ import annotations

import re

from cake.diagnostics import Diagnostic, Label, Span
from cake.machine import facts as ft


def describe(finding: ft.Finding) -> Diagnostic:
    """A `machine/...` diagnostic for any finding."""
    code = "machine/" + re.sub(r"(?<!^)(?=[A-Z])", "-", type(finding).__name__).lower()
    places = _places(finding)
    primary, *others = places or [(Span(1, 0, 1, 1), "")]
    return Diagnostic(
        code=code,
        message=_words(finding),
        primary=Label(*primary),
        secondary=tuple(Label(*place) for place in others),
        help="no rule explains this finding yet; `cake new rule NAME` starts one",
    )


def _places(finding: ft.Finding) -> list[tuple[Span, str]]:
    match finding:
        case ft.Race(earlier=earlier, later=later):
            return [(later.span, "conflicts"), (earlier.span, "with this access")]
        case ft.UninitializedRead(access=access):
            return [(access.span, "")]
        case ft.Displaced(access=access, by=by):
            return [(access.span, ""), (by.span, "overwritten here")]
        case ft.Deadlock(blocked=blocked):
            return [(b.span, f"role {b.role} waits for {b.waits_for}") for b in blocked]
        case ft.Transactions(expects=expects, copies=copies):
            return [*((s, "expected here") for s in expects), *((s, "delivered here") for s in copies)]
        case ft.BarrierMisuse(span=span, other=other):
            return [(span, ""), *([(other, "initialized here")] if other else [])]
        case ft.RendezvousMismatch(span=span, other=other):
            return [(span, ""), (other, "others meet here")]
        case ft.Unwritten(writes=writes):
            return [(span, "writes some of them") for span in writes]
        case ft.TensorMisuse(span=span, other=other):
            return [(span, ""), *([(other, "the other place")] if other else [])]
        case ft.RunAhead(span=span, earlier=earlier):
            return [(span, ""), *([(earlier, "arrived here before")] if earlier != span else [])]
        case ft.FragmentHazard(span=span, producer=producer):
            return [(span, ""), (producer, "computed here")]
        case _:
            lone = getattr(finding, "span", None)
            return [(lone, "")] if isinstance(lone, Span) else []


def _words(finding: ft.Finding) -> str:
    match finding:
        case ft.Race(earlier=earlier, cause=cause):
            return f"{cause} accesses to {earlier.buffer.name}"
        case ft.UninitializedRead(access=access):
            return f"reads bytes of {access.buffer.name} that nothing wrote"
        case ft.Displaced(access=access, by=by):
            return f"reads values of {access.buffer.name} in whose place {by.buffer.name} was written"
        case ft.Deadlock():
            return "no warp can go on"
        case ft.Transactions(slot=slot, expected=expected, delivered=delivered):
            return f"{slot.name}[{slot.index}] expects {expected} bytes and gets {delivered}"
        case ft.BarrierMisuse(kind=kind, slot=slot):
            return f"{slot.name}[{slot.index}]: {kind.replace('_', ' ')}"
        case ft.BarrierId(id=number):
            return f"there is no named barrier {number}: they are 1 to 15"
        case ft.RunAhead(id=number):
            return f"comes to barrier {number} again before its earlier arrival was consumed"
        case ft.TensorMisuse(kind=kind):
            return f"tensor memory: {kind.replace('_', ' ')}"
        case ft.Unwritten(buffer=buffer, missing=missing):
            return f"{missing} elements of {buffer.name} are never written"
        case ft.OutsideContract(value=value, low=low, high=high):
            return f"reads {value}, declared to lie between {low} and {high}"
        case ft.Runaway(steps=steps):
            return f"cut off after {steps} instructions"
        case ft.OutOfBounds(buffer=buffer, start=start, size=size):
            window = f"the window at {list(start)} of {list(size)}"
            return f"{window} sticks out of {buffer.name} {list(buffer.shape)}"
        case ft.Misaligned(buffer=buffer, offset=offset, bytes=size):
            return f"starts at byte {offset} of {buffer.name}, not a multiple of {size}"
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(finding).__name__).lower()
