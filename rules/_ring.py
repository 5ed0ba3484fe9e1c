"""What several rules say alike: deadlocks, and the calls of a kernel by name and place."""

from __future__ import annotations

from collections.abc import Iterator

from cake.diagnostics import Span
from cake.ir import nodes as n
from cake.machine.facts import Blocked, Deadlock, Facts


def places(deadlock: Deadlock) -> tuple[tuple[Span, str], ...]:
    """The second places of a deadlock: the other waits, and who could let the first one go."""
    first, *others = deadlock.blocked
    waits = [(b.span, f"role {b.role} waits for {b.waits_for}") for b in others]
    return (*waits, *((span, "this could let it go") for span in first.signallers))


def partly(deadlock: Deadlock) -> bool:
    """Whether what comes first is a phase that got some of its arrivals."""
    return bool(deadlock.blocked) and deadlock.blocked[0].incomplete


def barrier_name(blocked: Blocked) -> str:
    """`full[2]`, or the rendezvous."""
    return f"{blocked.slot.name}[{blocked.slot.index}]" if blocked.slot else blocked.waits_for


def calls_in(facts: Facts, role: str, *names: str) -> Iterator[n.Call]:
    """The calls of these names in a role, in order of the text."""
    for node in facts.instance.kernel.roles:
        if node.name == role:
            yield from (call for call in n.calls(node.body) if call.name in names)


def barrier_of(call: n.Call) -> str:
    """The mbarrier array that is the first operand of `wait(full[s], parity)` or `arrive(free[s])`."""
    first = call.args[0] if call.args else None
    match first:
        case n.Index(base=name) | n.Name(id=name):
            return name
    return ""


def before(calls: Iterator[n.Call], span: Span) -> n.Call | None:
    """The last of `calls` that stands before `span` in the text."""
    found = [call for call in calls if call.span < span]
    return found[-1] if found else None
