"""The state of an operational run: warps, what they have under way, mbarriers as the hardware keeps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cake.kinds.primitive import Op
from cake.machine import effects as fx
from cake.machine.agents import FragmentValue
from cake.machine.memory import Memory
from cake.machine.program import Instruction, Warp

Array = np.ndarray[Any, Any]


class Fault(Exception):
    """The hardware would trap, or do what the PTX ISA leaves undefined."""


@dataclass(slots=True, eq=False)
class Pending:
    """An asynchronous operation under way. `result`: the fragment whose registers it writes; `deferred`: what
    it has read and not yet written, None before it has read."""

    agent: Strand
    instruction: Instruction
    op: Op
    effects: tuple[fx.Async, ...]
    result: FragmentValue | None
    deferred: list[tuple[fx.Region, Array]] | None = None
    array: Array | None = None
    done: bool = False

    @property
    def reduces(self) -> bool:
        """Whether what it writes depends on what is there, at once."""
        return any(part.reduces for effect in self.effects for part in effect.writes)

    @property
    def completes(self) -> str:
        """By which kind of group, or by "barrier"."""
        return self.effects[0].group or "barrier"


@dataclass(slots=True, eq=False)
class Strand:
    """A warp at work."""

    warp: Warp
    steps: Any
    index: int
    cta: int
    registers: int
    result: Any = None
    blocked: Callable[[], bool] | None = None
    """Whether it may go on; asked when it is its turn: a warp that is not scheduled misses what passes."""
    then: Callable[[], None] | None = None
    """What happens when it goes on."""
    finished: bool = False
    executed: int = 0
    fenced: int = -1
    unpublished: list[fx.Region] = field(default_factory=list)
    """Written to shared memory or an output since a fence."""
    open: dict[str, list[Pending]] = field(default_factory=dict)
    closed: dict[str, list[list[Pending]]] = field(default_factory=dict)
    cluster_arrival: int | None = None


@dataclass(slots=True, eq=False)
class Promise:
    """Arrivals that are made once operations are done."""

    slot: fx.BarrierSlot
    owed: list[Pending]
    arrivals: int = 1


@dataclass(slots=True, eq=False)
class Phase:
    """An mbarrier as the hardware keeps it."""

    arrivals: int
    pending: int
    phase: int = 0
    transactions: int = 0
    fenced: bool = False

    def settle(self) -> None:
        """Complete the phase where all has come."""
        if self.pending == 0 and self.transactions == 0:
            self.phase += 1
            self.pending = self.arrivals


@dataclass(slots=True, eq=False)
class Gate:
    """A hardware barrier: how many have come, how often it opened."""

    came: int = 0
    generation: int = 0


class View(Memory):
    """The memory as one instruction sees it: reads from `shared`, writes kept back in `log` where there is
    one."""

    def __init__(self, base: Memory, shared: list[dict[str, Array]], cta: int) -> None:
        self.instance, self.arrays, self.written = base.instance, base.arrays, base.written
        self.shared, self.cta, self.places = shared, cta, base.places
        self.log: list[tuple[fx.Region, Array]] = []

    def write(self, region: fx.Region, data: Array) -> None:
        own = replace(region, cta=self.cta) if region.cta < 0 else region
        self.log.append((own, np.array(data)))
