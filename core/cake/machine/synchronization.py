"""Groups, mbarriers, fences, rendezvous, registers: what orders accesses, and what warps wait for.

Sources: PTX ISA, "mbarrier", "bar/barrier", "barrier.cluster", "Async-group mechanism", "setmaxnreg".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cake.machine import effects as fx
from cake.machine import facts as ft
from cake.machine.agents import Agent, Reach
from cake.machine.barriers import Barrier, Clock, Meeting
from cake.machine.program import Instruction

if TYPE_CHECKING:
    from cake.machine.engine import Engine


def commit(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.Commit) -> None:
    groups = agent.group(effect.group)
    groups.closed.append(groups.open)
    groups.open = []


def wait_group(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.WaitGroup) -> None:
    groups = agent.group(effect.group)
    settled = len(groups.closed) - effect.pending
    bits = 0
    for group in groups.closed[: max(0, settled)]:
        for reads, writes, _ in group:
            bits |= reads if effect.reads_only else reads | writes
    if not effect.reads_only and settled > 0:
        del groups.closed[:settled]
    if effect.group in ("tcgen05_ld", "tcgen05_st"):
        agent.tensor |= bits
        agent.clock.events |= bits
    elif effect.group == "wgmma":
        agent.clock.events |= bits
    else:
        agent.lane_events |= bits


# --- mbarriers --------------------------------------------------------------------------------------------


def init(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.InitBarrier) -> None:
    slot = engine.slot(agent, effect.slot)
    old = engine.barriers.get(slot)
    if old is not None:
        engine.find(ft.BarrierMisuse("reinitialized", slot, instruction.span, old.init))
    start = Clock.zero(engine.count)
    engine.barriers[slot] = Barrier(
        slot, effect.arrivals, start.copy(), [start], instruction.span, effect.arrivals
    )
    engine.init_epochs[slot] = (agent.index, agent.clock.seen[agent.index])


def barrier_of(
    engine: Engine,
    agent: Agent,
    instruction: Instruction,
    slot: fx.BarrierSlot,
    *,
    asynchronous: bool = False,
) -> Barrier | None:
    """The mbarrier, if it is ready for use by this warp; findings where it is not."""
    declared = engine.instance.barriers[slot.name]
    barrier = engine.barriers.get(slot)
    if barrier is None or not 0 <= slot.index < declared.count:
        engine.find(ft.BarrierMisuse("uninitialized", slot, instruction.span))
        return None
    warp, epoch = engine.init_epochs[slot]
    if warp != agent.index and agent.clock.seen[warp] < epoch:
        engine.find(ft.BarrierMisuse("init_unordered", slot, instruction.span, barrier.init))
    if not barrier.fenced and (asynchronous or warp != agent.index):
        engine.find(ft.BarrierMisuse("init_unfenced", slot, instruction.span, barrier.init))
        barrier.fenced = True
    return barrier


def arrive(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.Arrive) -> None:
    slot = engine.slot(agent, effect.slot)
    if slot.cta >= 0 and slot.cta != agent.cta and not reach(engine, agent, instruction, slot):
        return
    engine.signals.setdefault(slot, {})[instruction.span] = None
    engine.arrived.setdefault(slot, set()).add(agent.index)
    barrier = barrier_of(engine, agent, instruction, slot)
    if barrier is None:
        return
    if effect.expect_bytes:
        barrier.transactions += effect.expect_bytes
        barrier.expected += effect.expect_bytes
        barrier.expects[instruction.span] = None
    if barrier.pending == 0:
        engine.find(ft.BarrierMisuse("too_many_arrivals", slot, instruction.span, barrier.init))
        return
    if agent.clock.phases.get(slot, 0) < barrier.phase:
        engine.find(ft.BarrierMisuse("unordered_arrival", slot, instruction.span, barrier.init))
    barrier.pending -= 1
    barrier.arrivers.add(agent.index)
    alone = barrier.arrivers == {agent.index} and not barrier.expected
    barrier.gathered.join(release(agent))
    barrier.gathered.over(agent.clock.pledged.get(slot, 0), {})
    if complete(engine, barrier) and alone:
        agent.clock.phases[slot] = barrier.phase


def arrive_copied(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.ArriveCopied) -> None:
    """The arrivals bring the copies to be complete, and what was when they were issued; they release nothing
    that the threads have written themselves. Counted ones hold the phase that this warp arrives on, or who
    knows of them."""
    slot = engine.slot(agent, effect.slot)
    engine.signals.setdefault(slot, {})[instruction.span] = None
    groups = agent.group("cp_async")
    copies = 0
    for group in (groups.open, *groups.closed):
        for reads, writes, _ in group:
            copies |= reads | writes
            if not groups.tracked & writes:
                engine.copies.append((writes.bit_length() - 1, instruction, slot))
            groups.tracked |= writes
    barrier = barrier_of(engine, agent, instruction, slot)
    if barrier is None:
        return
    if agent.clock.phases.get(slot, 0) < barrier.phase:
        engine.find(ft.BarrierMisuse("unordered_arrival", slot, instruction.span, barrier.init))
    if effect.counted:
        agent.clock.pledged[slot] = agent.clock.pledged.get(slot, 0) | copies
        return
    engine.arrived.setdefault(slot, set()).add(agent.index)
    if barrier.pending < effect.arrivals:
        engine.find(ft.BarrierMisuse("too_many_arrivals", slot, instruction.span, barrier.init))
        return
    barrier.pending -= effect.arrivals
    barrier.arrivers.add(agent.index)
    barrier.gathered.over(engine.known(agent) | copies, agent.clock.phases)
    complete(engine, barrier)


def complete(engine: Engine, barrier: Barrier) -> bool:
    """Complete the phase where all has come. Every warp that waited for the phase before must have been past
    its wait by then, known to those who completed this one."""
    if not barrier.advance():
        return False
    span = barrier.lapped()
    if span is not None:
        engine.find(ft.BarrierMisuse("overrun", barrier.slot, span, barrier.init))
    return True


def reach(
    engine: Engine, agent: Agent, instruction: Instruction, what: int | fx.BarrierSlot, event: int = -1
) -> bool:
    """Reaching into the shared memory of another CTA of the cluster, by its rank or to an mbarrier there: it
    must have started, and must not end before that is done (looked at when all have ended). False where there
    is no such CTA."""
    cta = what if isinstance(what, int) else what.cta
    if not 0 <= cta < engine.instance.cluster:
        engine.find(ft.AbsentPeer("outside", instruction.span, cta))
        return False
    first = cta * engine.warps
    if not any(agent.clock.seen[first : first + engine.warps]):
        engine.find(ft.AbsentPeer("unstarted", instruction.span, cta))
    phase = (0, None) if isinstance(what, int) else (engine.phase(what) + 1, what)
    epoch = agent.clock.seen[agent.index]
    engine.reaches.append(Reach(cta, agent.index, epoch, event, instruction, *phase))
    return True


def release(agent: Agent) -> Clock:
    """What this warp makes known by a release; its later accesses get a later epoch."""
    agent.clock.events |= agent.lane_events
    out = agent.clock.copy()
    agent.clock.seen[agent.index] += 1
    return out


def wait(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.Wait) -> None:
    slot = engine.slot(agent, effect.slot)
    barrier = barrier_of(engine, agent, instruction, slot)
    if barrier is None:
        return
    within = None
    if engine.instance.cluster > 1 and effect.scope == "cta":
        within = range(agent.cta * engine.warps, (agent.cta + 1) * engine.warps)
    known = agent.clock.phases.get(slot, 0)
    needed = barrier.passing(known, effect.parity)
    if needed == barrier.phase == known or not needed:
        waits = engine.facts.repeated_waits if needed else engine.facts.idle_waits
        waits[slot.name, agent.warp.role.name] = instruction.span

    def ready() -> bool:
        if barrier.phase < needed:
            return False
        if barrier.phase > needed:
            engine.find(ft.BarrierMisuse("overrun", slot, instruction.span, barrier.init))
        agent.clock.join(barrier.history[needed], within)
        engine.events += 1  # that a wait is over is known as completions are, whatever the fences
        agent.clock.events |= 1 << engine.events
        barrier.waiters[agent.index] = (needed, engine.events, instruction.span)
        return True

    if not ready():
        agent.blocked = ready
        agent.waits = (instruction, f"the phase of parity {effect.parity & 1}", slot)


# --- fences, rendezvous, registers ------------------------------------------------------------------------


def fence(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.Fence) -> None:
    index = agent.index
    if effect.kind == "async_proxy":
        agent.clock.published[index] = agent.clock.seen[index]
        agent.clock.seen[index] += 1
        agent.clock.shown |= agent.clock.events | agent.lane_events
    elif effect.kind == "async_global":
        agent.clock.exported[index] = agent.clock.seen[index]
        agent.clock.seen[index] += 1
    elif effect.kind == "wgmma":
        agent.register_fence = agent.executed
    elif effect.kind == "tcgen05_before":
        agent.clock.tensor |= agent.tensor
    elif effect.kind == "tcgen05_after":
        agent.tensor |= agent.clock.tensor
    else:
        for slot, (warp, _) in engine.init_epochs.items():
            if warp == index:
                engine.barriers[slot].fenced = True


def acquire_map(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.AcquireMap) -> None:
    agent.acquired[effect.region.box] = agent.clock.seen[:]


def rendezvous(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.Rendezvous) -> None:
    if not 0 <= effect.id <= 15 or (effect.id == 0 and effect.warps):
        engine.find(ft.BarrierId(instruction.span, effect.id))
        return
    warps = effect.warps or engine.warps
    key = (agent.cta, effect.id)
    meeting = engine.meetings.get(key)
    if meeting is None:
        meeting = engine.meetings[key] = Meeting(warps, instruction.span)
    if meeting.came and meeting.expected != warps:
        counts = (warps, meeting.expected)
        engine.find(ft.RendezvousMismatch(effect.id, instruction.span, meeting.span, counts))
    if not meeting.came:
        meeting.expected, meeting.span, meeting.clock = warps, instruction.span, Clock.zero(engine.count)
    assert meeting.clock is not None
    # What is known of generations travels with clocks, as the phases of mbarriers do.
    slot = fx.BarrierSlot(f"barrier {effect.id}", 0, agent.cta)
    before = meeting.last.get(agent.index)
    if before is not None and agent.clock.phases.get(slot, 0) <= before[0]:
        engine.find(ft.RunAhead(effect.id, instruction.span, before[1]))
    meeting.last[agent.index] = (meeting.generation, instruction.span)
    meeting.came.append(agent.index)
    meeting.clock.join(release(agent))
    generation, joint = meeting.generation, meeting.clock
    if len(meeting.came) >= meeting.expected:
        meeting.came = []
        meeting.generation += 1
        joint.phases[slot] = meeting.generation
    if not effect.blocks:
        return

    def ready() -> bool:
        if meeting.generation == generation:
            return False
        agent.clock.join(joint)
        return True

    if not ready():
        agent.blocked = ready
        agent.waits = (instruction, f"{meeting.expected} warps at barrier {effect.id}", None)


def cluster_arrive(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.ClusterArrive) -> None:
    meeting = engine.cluster
    if agent.index in meeting.came or agent.cluster_arrival is not None:
        engine.find(ft.ClusterMisuse("arrives_twice", instruction.span))
        return
    assert meeting.clock is not None
    if effect.release:
        meeting.clock.join(release(agent))
    meeting.came.append(agent.index)
    agent.cluster_arrival = (meeting.generation, meeting.clock)
    cluster_complete(engine)


def cluster_complete(engine: Engine) -> None:
    """Open the cluster's barrier once every warp that has not ended has arrived."""
    meeting = engine.cluster
    if meeting.came and all(a.finished or a.index in meeting.came for a in engine.agents):
        meeting.came = []
        meeting.generation += 1
        meeting.clock = Clock.zero(engine.count)


def cluster_wait(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.ClusterWait) -> None:
    meeting, arrival = engine.cluster, agent.cluster_arrival
    if arrival is None:
        engine.find(ft.ClusterMisuse("waits_unannounced", instruction.span))
        return
    generation, joint = arrival

    def ready() -> bool:
        if meeting.generation == generation:
            return False
        agent.clock.join(joint)
        agent.cluster_arrival = None
        return True

    if not ready():
        agent.blocked = ready
        agent.waits = (instruction, "all warps at the barrier of the cluster", None)


HANDLERS: Mapping[type, Callable[..., None]] = {
    fx.Commit: commit,
    fx.WaitGroup: wait_group,
    fx.InitBarrier: init,
    fx.Arrive: arrive,
    fx.ArriveCopied: arrive_copied,
    fx.Wait: wait,
    fx.Fence: fence,
    fx.AcquireMap: acquire_map,
    fx.Rendezvous: rendezvous,
    fx.ClusterArrive: cluster_arrive,
    fx.ClusterWait: cluster_wait,
}
