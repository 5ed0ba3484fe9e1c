"""How a run ends: who waits for whom when nothing moves, and what must be drained when all is done."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cake.diagnostics import Span
from cake.machine import effects as fx
from cake.machine import facts as ft
from cake.machine import tensor_memory
from cake.machine.accesses import access_of
from cake.machine.agents import Agent, Reach
from cake.machine.barriers import Groups
from cake.machine.shadow import overlap

if TYPE_CHECKING:
    from cake.machine.engine import Engine


def deadlock(engine: Engine, alive: list[Agent]) -> None:
    starved = [
        b
        for b in engine.barriers.values()
        if (b.transactions and b.pending == 0) or (b.transactions < 0 and not b.expected)
    ]
    if starved:
        for b in starved:
            engine.find(ft.Transactions(b.slot, b.expected, b.delivered, tuple(b.expects), tuple(b.copies)))
        return
    for agent in alive:
        if agent.waits and agent.waits[1].startswith("registers:"):
            wanted = int(agent.waits[1].split(":")[1])
            free = engine.pools[agent.cta] // 32 + agent.registers
            engine.find(ft.RegisterPool(agent.waits[0].span, wanted, free))
            return
    seen: dict[tuple[Span, str], ft.Blocked] = {}
    for agent in alive:
        if agent.waits is None:
            continue
        instruction, what, slot = agent.waits
        by = signallers(engine, slot)
        where = ", ".join(f"{name}={value}" for name, value in agent.warp.iterations)
        key = (instruction.span, slot.name if slot else what)
        waiting = ft.Blocked(agent.warp.index, agent.warp.role.name, instruction.span, what, slot, by, where)
        seen.setdefault(key, _with_phases(engine, agent, waiting))
    blocked = tuple(sorted(seen.values(), key=lambda b: (b.slot is not None, not b.incomplete)))
    engine.find(ft.Deadlock(blocked, starved=_starved(engine, blocked)))


def _with_phases(engine: Engine, agent: Agent, blocked: ft.Blocked) -> ft.Blocked:
    barrier = engine.barriers.get(blocked.slot) if blocked.slot is not None else None
    if barrier is None:
        return blocked
    known = agent.clock.phases.get(barrier.slot, 0)
    # It is blocked, so the phase it needs is the next one after those it knows of, or the one after that.
    needed = known + 1 if barrier.phase < known + 1 else known + 2
    return replace(
        blocked, completed=barrier.phase, needed=needed, pending=barrier.pending, arrivals=barrier.arrivals
    )


def _starved(engine: Engine, blocked: tuple[ft.Blocked, ...]) -> bool:
    """Whether every warp that arrived on what the first waiter waits for has ended."""
    if not blocked or blocked[0].slot is None:
        return False
    name = blocked[0].slot.name
    arrived = {warp for slot, warps in engine.arrived.items() if slot.name == name for warp in warps}
    return bool(arrived) and all(engine.agents[warp].finished for warp in arrived)


def signallers(engine: Engine, slot: fx.BarrierSlot | None) -> tuple[Span, ...]:
    """Instructions that arrived on any slot of the same array during the run."""
    if slot is None:
        return ()
    spans = [span for s, found in engine.signals.items() if s.name == slot.name for span in found]
    return tuple(dict.fromkeys(spans))


def exit_checks(engine: Engine) -> None:
    absent_peers(engine)
    tensor_memory.leaked(engine)
    for (instruction, cta, group), counts in engine.together.items():
        if len(set(counts)) > 1:
            role = engine.agents[cta * engine.warps + 4 * group].warp.role.name
            engine.find(ft.PartialWarpgroup(instruction.name, instruction.span, role))
    everyone = 0
    for agent in engine.agents:
        everyone |= agent.clock.events | agent.lane_events
    for barrier in engine.barriers.values():
        if barrier.transactions:
            b = barrier
            engine.find(ft.Transactions(b.slot, b.expected, b.delivered, tuple(b.expects), tuple(b.copies)))
    for event, instruction, slot in engine.copies:
        if not (everyone >> event) & 1:
            engine.find(ft.BarrierMisuse("unconsumed", slot, instruction.span))
            break
    for agent in engine.agents:
        for kind, groups in agent.groups.items():
            undrained(engine, agent, kind, groups)


def absent_peers(engine: Engine) -> None:
    """A CTA whose shared memory is reached from another must not end before: some warp of it must know of the
    access when it ends."""
    for reach in engine.reaches:
        first = reach.cta * engine.warps
        for agent in engine.agents[first : first + engine.warps]:
            if _knows(agent, reach):
                break
        else:
            engine.find(ft.AbsentPeer("exited", reach.instruction.span, reach.cta))


def _knows(agent: Agent, reach: Reach) -> bool:
    if reach.event >= 0:
        return bool((agent.clock.events | agent.lane_events) >> reach.event & 1)
    if reach.slot is not None and agent.clock.phases.get(reach.slot, 0) >= reach.phase:
        return True
    return agent.clock.seen[reach.index] >= reach.epoch


def between_clusters(earlier: list[Engine], later: Engine) -> None:
    """Clusters are never ordered: no element of an output belongs to two of them. The first one is found."""
    for name, shadow in later.shadows[0].items():
        if not shadow.buffer.output:
            continue
        new = [r for records in shadow.slices.values() for r in records if r.write]
        for engine in earlier:
            for record in (
                r for records in engine.shadows[0][name].slices.values() for r in records if r.write
            ):
                atomic = record.reduces
                found = next(
                    (r for r in new if overlap(r.box, record.box) and not (atomic and r.reduces)), None
                )
                if found is not None:
                    a, b = access_of(record, shadow.buffer), access_of(found, shadow.buffer)
                    blocks = (engine.block_of(record.warp), later.block_of(found.warp))
                    later.find(ft.Race(a, b, "unordered", blocks))
                    return


def unwritten(every: list[Engine]) -> None:
    """After the whole grid: outputs that are written in part, or not while others are."""
    last = every[-1]
    outputs = [b for b in last.instance.buffers.values() if b.output]
    found = []
    for buffer in outputs:
        shadows = [engine.shadows[0][buffer.name] for engine in every]
        masks = [shadow.written for shadow in shadows if shadow.written is not None]
        if len(masks) < len(shadows):
            return  # too large to keep
        written = np.logical_or.reduce(masks)
        records = (r for s in shadows for records in s.slices.values() for r in records if r.write)
        spans = tuple(sorted({r.instruction.span for r in records}))
        found.append((buffer, written, spans))
    if not any(written.any() for _, written, _ in found):
        return
    for buffer, written, spans in found:
        if not written.all():
            first = tuple(int(axis[0]) for axis in np.nonzero(~written))
            missing = int(written.size - np.count_nonzero(written))
            last.find(ft.Unwritten(buffer, missing, first, spans))


def undrained(engine: Engine, agent: Agent, kind: str, groups: Groups) -> None:
    """Every group must be committed, and its reads of shared memory known complete, before the CTA ends."""
    known = agent.clock.events | agent.lane_events
    group: fx.Group = kind  # type: ignore[assignment]
    if kind in ("tcgen05_ld", "tcgen05_st"):
        return  # their registers and columns are the warp's own until it gives them away
    for span in [span for _, writes, span in groups.open if not groups.tracked & writes][:1]:
        engine.find(ft.Undrained(group, span, False))
    for closed in groups.closed:
        for reads, writes, span in closed[:1]:
            if not (known | groups.tracked) & (reads if kind == "bulk" else writes):
                engine.find(ft.Undrained(group, span, True))
                return
