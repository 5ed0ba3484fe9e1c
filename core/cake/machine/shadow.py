"""Shadow memory: who touched which bytes last, and which bytes hold a value.

Happens-before decides races, never the order of one run. A generic access is known by (warp, epoch): it
happens before whatever has a clock for that warp that is as late. An asynchronous access is known by an
event number: it happens before whatever knows that event to be complete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cake.ir.types import Buffer
from cake.machine.effects import BarrierSlot, Box, Group
from cake.machine.program import Instruction

MAX_MASK = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One access. `event` is -1 for a generic access, which `warp` made at `epoch`."""

    write: bool
    event: int
    warp: int
    epoch: int
    box: Box
    instruction: Instruction
    role: str
    proxy: str
    completion: Group | BarrierSlot | None
    reduces: bool = False
    passes: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class Knowledge:
    """What an accessor knows: `clock` per warp; events known complete as bits, and those of cp.async whose
    writes its proxy sees."""

    clock: list[int]
    events: int
    shown: int


@dataclass(slots=True, eq=False)
class Shadow:
    """The shadow of one buffer. Records are kept per slice of the first axis where an access stays in one."""

    buffer: Buffer
    written: np.ndarray[Any, Any] | None
    slices: dict[int, list[Record]] = field(default_factory=dict)
    complete: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, buffer: Buffer) -> Shadow:
        """Inputs hold values from the start. Outputs and shared memory hold none."""
        known = buffer.space == "global" and not buffer.output
        small = buffer.bytes <= MAX_MASK
        return cls(buffer, None if known or not small else np.zeros(buffer.shape, bool))

    def candidates(self, box: Box) -> list[list[Record]]:
        """The record lists that may overlap `box`."""
        key = _key(box)
        if key < 0:
            return list(self.slices.values())
        return [found for k in (key, -1) if (found := self.slices.get(k))]

    def conflicts(
        self, new: Record, known: Knowledge, meets: Callable[[Record], bool] | None = None
    ) -> list[Record]:
        """Earlier accesses that conflict with `new` and are not known to come before it. `meets` tells of
        each whether it has bytes in common with `new`, where that is an access to another buffer."""
        out = []
        clock, events, event = known.clock, known.events, new.event
        shown = known.shown if new.proxy == "async" else events
        for records in self.slices.values() if meets else self.candidates(new.box):
            for old in records:
                # Most accesses are known to come before: ask that first, it is cheaper than comparing boxes.
                if old.event >= 0:
                    seen = events if old.proxy == "async" else shown
                    ordered = (seen >> old.event) & 1 or old.event == event
                else:
                    ordered = clock[old.warp] >= old.epoch
                if ordered or not (old.write or new.write) or (old.reduces and new.reduces):
                    continue
                if meets(old) if meets else overlap(old.box, new.box):
                    out.append(old)
        return out

    def settle(self, covered: Callable[[Record], bool]) -> None:
        """Forget the accesses all of whose bytes were written through another buffer."""
        for records in self.slices.values():
            records[:] = [old for old in records if not covered(old)]

    def overwrite(self, elements: np.ndarray[Any, Any], valid: bool) -> None:
        """`elements` (a mask) were written through another buffer: they hold a value now, or none."""
        if self.written is not None:
            self.written[elements] = valid
            if not valid:
                self.complete.clear()

    def add(self, new: Record) -> None:
        """Remember `new` and forget what it settles: a write, every older access to the same bytes."""
        key = _key(new.box)
        for records in self.candidates(new.box) if new.write else [self.slices.get(key) or []]:
            if new.reduces:
                continue  # who comes after it need not come after what it waited for
            if new.write:
                records[:] = [old for old in records if not contains(new.box, old.box)]
            elif new.event < 0:
                records[:] = [
                    old
                    for old in records
                    if old.write or old.event >= 0 or old.warp != new.warp or old.box != new.box
                ]
        self.slices.setdefault(key, []).append(new)

    def mark(self, box: Box) -> None:
        """The bytes in `box` hold a value from now on."""
        if self.written is None:
            return
        key = _key(box)
        if key >= 0 and key in self.complete:
            return
        self.written[tuple(slice(a, a + n) for a, n in box)] = True
        if key >= 0 and self.written[key].all():
            self.complete.add(key)

    def holds(self, box: Box) -> bool:
        """Whether every element of `box` holds a value."""
        if self.written is None or _key(box) in self.complete:
            return True
        return bool(self.written[tuple(slice(a, a + n) for a, n in box)].all())


def _key(box: Box) -> int:
    return box[0][0] if box and box[0][1] == 1 else -1


def overlap(a: Box, b: Box) -> bool:
    """Whether two boxes of one buffer share an element."""
    for (x, n), (y, m) in zip(a, b, strict=True):
        if x + n <= y or y + m <= x or n == 0 or m == 0:
            return False
    return True


def contains(outer: Box, inner: Box) -> bool:
    """Whether every element of `inner` lies in `outer`."""
    for (x, n), (y, m) in zip(outer, inner, strict=True):  # noqa: SIM110 (a generator takes twice the time)
        if y < x or y + m > x + n:
            return False
    return True
