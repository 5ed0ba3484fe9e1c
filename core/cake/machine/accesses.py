"""Accesses to memory: races by happens-before, bytes that nothing wrote, windows that stick out.

Sources: PTX ISA, "Memory Consistency Model" (proxies, causality order), "Asynchronous Operations".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cake.ir.types import Buffer
from cake.machine import effects as fx
from cake.machine import facts as ft
from cake.machine import overlays, tensor_memory
from cake.machine.agents import Agent
from cake.machine.program import Instruction
from cake.machine.shadow import Knowledge, Record
from cake.machine.synchronization import barrier_of, complete, reach

if TYPE_CHECKING:
    from cake.machine.engine import Engine


def read(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.Read) -> None:
    access(engine, agent, instruction, effect, write=False)


def write(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.Write) -> None:
    access(engine, agent, instruction, effect, write=True)


def aligned(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.Aligned) -> None:
    offset = 0
    for start, extent in zip(effect.start, effect.buffer.shape, strict=True):
        offset = offset * extent + start
    offset *= effect.buffer.dtype.bytes
    if offset % effect.bytes:
        engine.find(ft.Misaligned(instruction.name, instruction.span, effect.buffer, offset, effect.bytes))


def inside(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.Inside) -> None:
    region = effect.region
    if not region.inside:
        engine.find(
            ft.OutOfBounds(instruction.name, instruction.span, region.buffer, region.start, region.size)
        )


def banked(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.Banked) -> None:
    traffic = effect.traffic
    if traffic.wavefronts == traffic.least:
        return
    key = (instruction.span, effect.buffer.name)
    known = engine.facts.conflicts.get(key)
    if known is None or known.traffic.wavefronts < traffic.wavefronts:
        conflict = ft.BankConflict(instruction.name, instruction.span, effect.buffer, traffic)
        engine.facts.conflicts[key] = conflict


def access(
    engine: Engine,
    agent: Agent,
    instruction: Instruction,
    part: fx.Read | fx.Write,
    *,
    write: bool,
    event: int = -1,
    proxy: str = "generic",
    completion: fx.Group | fx.BarrierSlot | None = None,
) -> None:
    """One access, at once (`event` -1) or by the asynchronous operation `event`."""
    buffer, box = part.buffer, part.box
    for _, extent in box:
        if extent == 0:
            return
    if buffer.space == "global" and not buffer.output:
        return
    cta = agent.cta
    if part.cta >= 0 and part.cta != cta:
        if not reach(engine, agent, instruction, part.cta, event):
            return
        cta = part.cta
    shadow = engine.shadows[cta][buffer.name]
    index = agent.index
    role, passes = agent.warp.role.name, tuple(agent.warp.iterations)
    epoch = agent.clock.seen[index]
    reduces = isinstance(part, fx.Write) and part.reduces
    new = Record(write, event, index, epoch, box, instruction, role, proxy, completion, reduces, passes)
    clock = agent.clock.seen
    if proxy == "async":
        clock = agent.clock.toward(buffer.space)
    elif proxy == "tensormap":
        clock = agent.acquired.get(box) or [0] * engine.count
    if event < 0 or proxy == "generic":
        # Program order orders a warp's own generic accesses.
        clock = clock if clock[index] >= new.epoch else [*clock[:index], new.epoch, *clock[index + 1 :]]
    events = engine.known(agent)
    if buffer.space == "tensor":
        tensor_memory.usable(engine, agent, instruction, buffer)
        events = tensor_memory.known(agent, completion)
    known = Knowledge(clock, events, events & agent.clock.shown)
    for old in shadow.conflicts(new, known):
        race(engine, agent, access_of(old, buffer), old, new, buffer)
    others = engine.aliases.get(buffer.name)
    if others:
        for old, other in overlays.conflicts(engine.shadows[cta], others, buffer, new, known):
            race(engine, agent, access_of(old, other), old, new, buffer)
    if (reduces or not write) and not shadow.holds(box):
        valueless(engine, cta, new, buffer)
    shadow.add(new)
    if write and event < 0:
        engine.firsts.setdefault((instruction, index), new.epoch)
    if write:
        shadow.mark(box)
        if others:
            overlays.written(engine.shadows[cta], others, buffer, box)


def valueless(engine: Engine, cta: int, new: Record, buffer: Buffer) -> None:
    """A read of bytes that hold no value: nothing wrote them, or another buffer's value took their place."""
    gone = overlays.displaced(engine, cta, buffer, new.box)
    access = access_of(new, buffer)
    if gone is None:
        engine.find(ft.UninitializedRead(access))
        return
    by = access_of(*gone)
    same = (f for f in engine.facts.of(ft.Displaced) if (f.access.span, f.by.span) == (access.span, by.span))
    if next(same, None) is None:
        engine.find(ft.Displaced(access, by))


def race(engine: Engine, agent: Agent, earlier: ft.Access, old: Record, new: Record, buffer: Buffer) -> None:
    cause: ft.Cause
    if buffer.space == "tensor":
        cause = "tensor_unfenced" if engine.known(agent) >> old.event & 1 else "tensor_unfinished"
    elif old.event >= 0 and engine.known(agent) >> old.event & 1:
        cause = "unfenced"
    elif old.event >= 0:
        cause = unfinished(engine, agent, old)
    elif agent.clock.seen[old.warp] >= old.epoch or old.warp == new.warp:
        cause = "unfenced"
    elif old.write and not new.write and told_before(engine, agent, old):
        cause = "overtaken"
    else:
        cause = "unordered"
    later = access_of(new, buffer)
    for known in engine.facts.of(ft.Race):
        same = (known.earlier.span, known.later.span, known.cause, known.earlier.buffer.name)
        if same == (earlier.span, later.span, cause, earlier.buffer.name):
            return
    engine.find(ft.Race(earlier, later, cause))


def told_before(engine: Engine, agent: Agent, old: Record) -> bool:
    """Whether `agent` knows of an earlier execution of the instruction, whose bytes this one replaces."""
    return engine.firsts[old.instruction, old.warp] <= agent.clock.seen[old.warp]


def unfinished(engine: Engine, agent: Agent, old: Record) -> ft.Cause:
    """What is amiss with an asynchronous operation that `agent` does not know to be complete. Of one that
    completes in its warp: `agent` does not even know of its issue, or its lanes have not met since."""
    issuer = engine.agents[old.warp]
    if isinstance(old.completion, fx.BarrierSlot):
        waited = agent.clock.phases.get(old.completion, 0) > 0
        return "overtaken" if waited and issuer is not agent else "incomplete"
    if issuer is agent:
        return "unordered" if agent.lane_events >> old.event & 1 else "incomplete"
    return "incomplete" if agent.clock.seen[old.warp] >= old.epoch else "unordered"


def access_of(record: Record, buffer: Buffer) -> ft.Access:
    i = record.instruction
    proxy: fx.Proxy = record.proxy  # type: ignore[assignment]
    return ft.Access(
        i.name,
        i.span,
        record.warp,
        record.role,
        proxy,
        record.write,
        buffer,
        record.box,
        record.event >= 0,
        record.completion,
        record.passes,
    )


def asynchronous(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.Async) -> None:
    engine.events += 2
    reads, writes = engine.events, engine.events - 1
    slot = engine.slot(agent, effect.barrier) if effect.barrier is not None else None
    if effect.group == "tcgen05":
        agent.issued |= 1 << reads | 1 << writes
    parts: tuple[fx.Read | fx.Write, ...] = (*effect.reads, *effect.writes)
    for part in parts:
        is_write = isinstance(part, fx.Write)
        access(
            engine,
            agent,
            instruction,
            part,
            write=is_write,
            event=writes if is_write else reads,
            proxy="tensormap" if isinstance(part, fx.Read) and part.tensormap else effect.proxy,
            completion=effect.group or slot,
        )
    if effect.group is not None:
        agent.group(effect.group).open.append((1 << reads, 1 << writes, instruction.span))
    if slot is not None:
        barrier = barrier_of(engine, agent, instruction, slot, asynchronous=True)
        engine.copies.append((writes, instruction, slot))
        if barrier is not None:
            # A copy completes after its issue: what was over by then is over.
            barrier.gathered.over(engine.known(agent) | 1 << reads | 1 << writes, agent.clock.phases)
            barrier.transactions -= effect.bytes
            barrier.delivered += effect.bytes
            barrier.copies[instruction.span] = None
            complete(engine, barrier)


HANDLERS: Mapping[type, Callable[..., None]] = {
    fx.Read: read,
    fx.Write: write,
    fx.Aligned: aligned,
    fx.Inside: inside,
    fx.Banked: banked,
    fx.Async: asynchronous,
    **tensor_memory.HANDLERS,
}
