"""Tensor memory: who has allocated it, and which operations on it come after which.

Operations on it are asynchronous. Those that one thread issues to the tensor cores keep their order; a load
or store is complete for its warp after its wait. To another thread, completion is handed on by
tcgen05.fence::before_thread_sync (tcgen05.commit contains it) and taken up by
tcgen05.fence::after_thread_sync.

Source: PTX ISA, "tcgen05 Memory Consistency Model", "Tensor Memory Allocation and Management Instructions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cake.diagnostics import Span
from cake.ir.types import Buffer
from cake.machine import effects as fx
from cake.machine import facts as ft
from cake.machine.agents import Agent
from cake.machine.program import Instruction
from cake.machine.synchronization import barrier_of, complete

if TYPE_CHECKING:
    from cake.machine.engine import Engine


@dataclass(slots=True, eq=False)
class Allocation:
    """What a CTA holds: by whom it was allocated and when; `freed`: where, by whom and when it was given
    back."""

    columns: int
    agent: int
    epoch: int
    span: Span
    freed: tuple[Span, int, int] | None = None


def allocate(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.Allocate) -> None:
    held = engine.tensor.get(agent.cta)
    if held is not None and held.freed is None:
        engine.find(ft.TensorMisuse("allocated_twice", instruction.span, held.span))
        return
    if agent.cta in engine.relinquished:
        engine.find(ft.TensorMisuse("relinquished", instruction.span, engine.relinquished[agent.cta]))
    epoch = agent.clock.seen[agent.index]
    engine.tensor[agent.cta] = Allocation(effect.columns, agent.index, epoch, instruction.span)


def relinquish(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.Relinquish) -> None:
    """No thread of the CTA may allocate after any of them gave the permit up: whoever did must be known to
    have."""
    engine.relinquished[agent.cta] = instruction.span
    held = engine.tensor.get(agent.cta)
    if held is not None and held.agent != agent.index and agent.clock.seen[held.agent] < held.epoch:
        engine.find(ft.TensorMisuse("relinquished", held.span, instruction.span))


def deallocate(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.Deallocate) -> None:
    held = engine.tensor.get(agent.cta)
    if held is None or held.freed is not None or held.columns != effect.columns:
        kind: ft.TensorKind = "wrong_size" if held is not None and held.freed is None else "unallocated"
        engine.find(ft.TensorMisuse(kind, instruction.span, held.span if held else None))
        return
    held.freed = (instruction.span, agent.index, agent.clock.seen[agent.index])
    for shadow in engine.shadows[agent.cta].values():
        if shadow.buffer.space == "tensor":
            for record in (r for records in shadow.slices.values() for r in records):
                if not agent.clock.events >> record.event & 1:
                    span = record.instruction.span
                    engine.find(ft.TensorMisuse("freed_in_use", instruction.span, span))
                    return


def usable(engine: Engine, agent: Agent, instruction: Instruction, buffer: Buffer) -> None:
    """An access to tensor memory: it must be allocated, known to be so, and not given back."""
    held = engine.tensor.get(agent.cta)
    if held is None:
        engine.find(ft.TensorMisuse("unallocated", instruction.span))
    elif held.freed is not None:
        span, by, epoch = held.freed
        if agent.index == by or agent.clock.seen[by] >= epoch:
            engine.find(ft.TensorMisuse("freed", instruction.span, span))
        else:
            engine.find(ft.TensorMisuse("freed_in_use", span, instruction.span))
    elif buffer.offset + buffer.columns > held.columns:
        engine.find(ft.TensorMisuse("beyond", instruction.span, held.span))
    elif held.agent != agent.index and agent.clock.seen[held.agent] < held.epoch:
        engine.find(ft.TensorMisuse("unordered", instruction.span, held.span))


def known(agent: Agent, group: fx.Group | fx.BarrierSlot | None) -> int:
    """Operations on tensor memory that the next one of this warp comes after."""
    return agent.tensor | (agent.issued if group == "tcgen05" else 0)


def commit_to(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.CommitTo) -> None:
    """The arrival brings what the thread has issued so far to be complete, and what was when it did; it
    releases nothing that the thread has written itself."""
    slot = engine.slot(agent, effect.slot)
    engine.signals.setdefault(slot, {})[instruction.span] = None
    engine.arrived.setdefault(slot, set()).add(agent.index)
    agent.group("tcgen05").open = []
    barrier = barrier_of(engine, agent, instruction, slot, asynchronous=True)
    if barrier is None:
        return
    if barrier.pending == 0:
        engine.find(ft.BarrierMisuse("too_many_arrivals", slot, instruction.span, barrier.init))
        return
    if agent.clock.phases.get(slot, 0) < barrier.phase:
        engine.find(ft.BarrierMisuse("unordered_arrival", slot, instruction.span, barrier.init))
    barrier.pending -= 1
    barrier.arrivers.add(agent.index)
    alone = barrier.arrivers == {agent.index} and not barrier.expected
    barrier.gathered.over(agent.issued | engine.known(agent), agent.clock.phases)
    barrier.gathered.tensor |= agent.issued
    if complete(engine, barrier) and alone:
        agent.clock.phases[slot] = barrier.phase


def leaked(engine: Engine) -> None:
    """A CTA that ends without giving tensor memory back starves those that follow on its SM."""
    for held in engine.tensor.values():
        if held.freed is None:
            engine.find(ft.TensorMisuse("leaked", held.span))


HANDLERS: Mapping[type, Callable[..., None]] = {
    fx.Allocate: allocate,
    fx.Relinquish: relinquish,
    fx.Deallocate: deallocate,
    fx.CommitTo: commit_to,
}
