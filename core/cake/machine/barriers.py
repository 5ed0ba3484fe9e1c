"""The state that synchronization lives in: mbarriers, rendezvous, groups, the register pool.

Sources: PTX ISA, "mbarrier" (phase, pending count, tx-count), "bar/barrier", "Async-group mechanism".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cake.diagnostics import Span
from cake.machine.effects import BarrierSlot


@dataclass(slots=True)
class Clock:
    """What is known to have happened: warp w up to epoch `seen[w]`, and visible to the async proxy up to
    `published[w]`, of what it did to global tensors up to `exported[w]`. `events` has a bit for each
    asynchronous operation known complete, `tensor` for those on tensor memory that a tcgen05 fence has handed
    on, `shown` for those whose writes through the generic proxy (cp.async) are visible to the async proxy.
    `phases`: how many phases of an mbarrier are known complete; `pledged`: the copies without which its phase
    does not complete."""

    seen: list[int]
    published: list[int]
    events: int = 0
    tensor: int = 0
    shown: int = 0
    exported: dict[int, int] = field(default_factory=dict)
    phases: dict[BarrierSlot, int] = field(default_factory=dict)
    pledged: dict[BarrierSlot, int] = field(default_factory=dict)

    @classmethod
    def zero(cls, warps: int) -> Clock:
        return cls([0] * warps, [0] * warps)

    def copy(self) -> Clock:
        return Clock(
            self.seen[:],
            self.published[:],
            self.events,
            self.tensor,
            self.shown,
            self.exported.copy(),
            self.phases.copy(),
            self.pledged.copy(),
        )

    def toward(self, space: str) -> list[int]:
        """Up to which epoch of each warp the async proxy sees what was done to a memory."""
        if space != "global":
            return self.published
        return [self.exported.get(warp, 0) for warp in range(len(self.seen))]

    def over(self, events: int, phases: Mapping[BarrierSlot, int]) -> None:
        """Know these completions and phases to be over, and nothing of what anybody wrote."""
        self.events |= events
        for slot, phase in phases.items():
            if phase > self.phases.get(slot, 0):
                self.phases[slot] = phase

    def join(self, other: Clock, within: range | None = None) -> None:
        """Know what `other` knows, too; of warps, only those `within`."""
        if within is not None:
            other = other.copy()
            for index in range(len(other.seen)):
                if index not in within:
                    other.seen[index] = other.published[index] = 0
                    other.exported.pop(index, None)
        self.seen = [a if a > b else b for a, b in zip(self.seen, other.seen, strict=True)]
        self.published = [a if a > b else b for a, b in zip(self.published, other.published, strict=True)]
        self.tensor |= other.tensor
        self.shown |= other.shown
        for warp, epoch in other.exported.items():
            self.exported[warp] = max(epoch, self.exported.get(warp, 0))
        for slot, copies in other.pledged.items():
            self.pledged[slot] = self.pledged.get(slot, 0) | copies
        self.over(other.events, other.phases)


@dataclass(slots=True)
class Barrier:
    """One mbarrier. `phase` counts completed phases; `gathered` is the knowledge arrivals brought;
    `history[p]` is what a waiter learns that sees `p` phases complete."""

    slot: BarrierSlot
    arrivals: int
    gathered: Clock
    history: list[Clock]
    init: Span
    pending: int = 0
    phase: int = 0
    transactions: int = 0
    expected: int = 0
    delivered: int = 0
    fenced: bool = False
    arrivers: set[int] = field(default_factory=set)
    expects: dict[Span, None] = field(default_factory=dict)
    copies: dict[Span, None] = field(default_factory=dict)
    waiters: dict[int, tuple[int, int, Span]] = field(default_factory=dict)
    """Per warp its latest wait: completed phases it needed, the event of its end, its place."""

    def lapped(self) -> Span | None:
        """A wait that nothing keeps this phase from passing by: the warp may look only when one more phase is
        over, and see the parity that makes it wait."""
        for needed, event, span in self.waiters.values():
            if needed == self.phase - 1 and not self.history[-1].events >> event & 1:
                return span
        return None

    def advance(self) -> bool:
        """Complete the phase if every arrival came and every expected byte arrived."""
        if self.pending or self.transactions:
            return False
        self.phase += 1
        self.pending = self.arrivals
        self.expected = self.delivered = 0
        self.arrivers.clear()
        self.gathered.phases[self.slot] = self.phase
        self.history.append(self.gathered)
        self.gathered = self.gathered.copy()
        return True

    def passing(self, known: int, parity: int) -> int:
        """try_wait.parity passes when the phase before the current one has this parity: the fewest completed
        phases at which a waiter that knows of `known` may pass. Whatever the schedule, it learns no more."""
        return known if (known & 1) != (parity & 1) else known + 1


@dataclass(slots=True)
class Meeting:
    """A hardware barrier gathering warps. `last`: generation and place of each warp's latest arrival."""

    expected: int
    span: Span
    came: list[int] = field(default_factory=list)
    clock: Clock | None = None
    generation: int = 0
    last: dict[int, tuple[int, Span]] = field(default_factory=dict)


@dataclass(slots=True)
class Groups:
    """Asynchronous groups of one kind of one warp: events of the open group, then closed ones, oldest first.
    Each event is (bit of its reads, bit of its writes, place). `tracked`: writes an mbarrier waits for."""

    open: list[tuple[int, int, Span]] = field(default_factory=list)
    closed: list[list[tuple[int, int, Span]]] = field(default_factory=list)
    tracked: int = 0
