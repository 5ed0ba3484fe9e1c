"""A warp at work on the machine, and the fragments it holds."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cake.diagnostics import Span
from cake.ir.types import FragmentType
from cake.machine.barriers import Clock, Groups
from cake.machine.effects import BarrierSlot, Box
from cake.machine.program import Instruction, Warp

Array = np.ndarray[Any, Any]


@dataclass(slots=True, eq=False)
class FragmentValue:
    """A fragment held by one warp: `array` of shape `layout.warp_shape` (None when only facts are observed).
    `event` is the asynchronous operation that writes the registers, -1 for none."""

    type: FragmentType
    array: Array | None
    producer: Instruction
    event: int = -1
    modified: int = 0


@dataclass(slots=True, eq=False)
class Agent:
    """A warp at work."""

    warp: Warp
    steps: Generator[Instruction, Any, None]
    clock: Clock
    registers: int
    index: int
    """Among the warps of the cluster."""
    cta: int
    """Rank of its CTA in the cluster."""
    lane_events: int = 0
    """Completions known to the elected or copying lanes, not yet to the whole warp."""
    tensor: int = 0
    """Operations on tensor memory that its own ones come after: waited for itself, or fenced."""
    issued: int = 0
    """Its own operations on the tensor cores, which keep their order."""
    executed: int = 0
    register_fence: int = -1
    blocked: Callable[[], bool] | None = None
    waits: tuple[Instruction, str, BarrierSlot | None] | None = None
    started: bool = False
    finished: bool = False
    result: Any = None
    groups: dict[str, Groups] = field(default_factory=dict)
    resized: list[tuple[int, Span]] = field(default_factory=list)
    """Its changes of the register budget: in which epoch, and where."""
    acquired: dict[Box, list[int]] = field(default_factory=dict)
    """Of a tensor map in memory: up to which epoch of each warp its copies see what was written to it."""
    cluster_arrival: tuple[int, Clock] | None = None
    """Generation of the cluster's barrier at which it arrived and still is to wait, and what that gathers."""

    def group(self, kind: str) -> Groups:
        return self.groups.setdefault(kind, Groups())


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """An access to the shared memory of CTA `cta` by agent `index` of another: at `epoch`, or asynchronously
    as `event`; or an arrival there that counts for phase number `phase` of `slot`."""

    cta: int
    index: int
    epoch: int
    event: int
    instruction: Instruction
    phase: int = 0
    slot: BarrierSlot | None = None
