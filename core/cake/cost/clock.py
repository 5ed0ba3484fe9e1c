"""The machine on a clock: one CTA with its SM to itself, earliest warp first.

Units of the SM are resources that are busy until a time. An instruction starts when its warp, its issue slot,
its operands and its units are free; asynchronous work is queued in its units and completes later. What an
instruction synchronizes is read from the same effects that the engine applies.

A fragment becomes ready progressively, first element to last, as its instructions (one for each few
registers) leave the pipeline; a consumer may start on the first. So dependent tile operations overlap as the
compiler schedules them. What waiting costs is charged to the line that waits.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from cake.ir.instance import Instance
from cake.ir.types import FragmentType
from cake.kinds.primitive import Op, Primitive, Use
from cake.kinds.primitive import Parameters as Lookup
from cake.machine import effects as fx
from cake.machine.program import Instruction, Program, Trips, Warp
from cake.machine.registers import entry_budget

SCHEDULERS = 4
"""Parts of an SM with an issue slot each; warp w belongs to part w % 4."""

PARTITIONED = frozenset({"tensor", "alu", "mufu"})
"""Units of which each part of the SM has its own quarter; the others are shared by the SM."""

MAX_STEPS = 400_000

Timed = (
    fx.Async
    | fx.Commit
    | fx.WaitGroup
    | fx.InitBarrier
    | fx.Arrive
    | fx.ArriveCopied
    | fx.Wait
    | fx.Fence
    | fx.Rendezvous
    | fx.SetRegisters
)
"""The effects that take or shift time; accesses to memory cost what `time` says."""

Place = tuple[int, str, str]
"""Line, role and task."""


def mirrored(slot: fx.BarrierSlot) -> fx.BarrierSlot:
    """One CTA is run for all of a cluster: what it does to the others, they do to it."""
    return slot if slot.cta < 0 else fx.BarrierSlot(slot.name, slot.index)


class Stuck(Exception):
    """No warp can go on, or the run was cut off. `instructions` are those that wait."""

    def __init__(self, instructions: tuple[Instruction, ...], message: str) -> None:
        self.instructions = instructions
        super().__init__(message)


@dataclass(slots=True)
class Timeline:
    """What the clock saw of one CTA, in cycles.

    `busy` per unit of the whole SM, "issue" and "l2" among them; `part` the same for the busiest quarter of
    partitioned units. `lines` and `stalls` (by what is waited for: "copy", "tensor", "warps", "operands")
    per place and warp. `tensors` bytes asked of the memory system per global tensor, (read, written).
    """

    cycles: float = 0.0
    busy: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    part: dict[tuple[str, int], float] = field(default_factory=lambda: defaultdict(float))
    lines: dict[tuple[Place, int], float] = field(default_factory=lambda: defaultdict(float))
    stalls: dict[tuple[str, Place, int], float] = field(default_factory=lambda: defaultdict(float))
    units: dict[tuple[str, int], float] = field(default_factory=lambda: defaultdict(float))
    tensors: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    accesses: dict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass(slots=True, eq=False)
class Held:
    """A fragment on the clock: when its first and its last element are ready."""

    type: FragmentType
    first: float
    last: float


@dataclass(slots=True)
class Group:
    """Asynchronous groups of one kind: (reads done, writes done) of the open one and of the closed ones."""

    open: tuple[float, float] = (0.0, 0.0)
    closed: list[tuple[float, float]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Barrier:
    """One mbarrier: `gathered` when the latest arrival or byte of the open phase came, and what it was."""

    arrivals: int
    pending: int
    transactions: int = 0
    phase: int = 0
    gathered: float = 0.0
    cause: str = "warps"
    done: float = 0.0
    done_cause: str = "warps"
    waiting: list[tuple[Agent, int]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Meeting:
    """Warps that have come to a hardware barrier, and when the last came."""

    came: list[Agent] = field(default_factory=list)
    arrived: int = 0
    latest: float = 0.0


@dataclass(slots=True, eq=False)
class Pending:
    """An instruction fetched and costed, waiting for its turn."""

    instruction: Instruction
    use: Use
    effects: tuple[Timed, ...]
    operands: tuple[Held, ...]
    since: float


@dataclass(slots=True, eq=False)
class Agent:
    """A warp at work."""

    warp: Warp
    steps: Generator[Instruction, Any, None]
    registers: int
    result: Any = None
    pending: Pending | None = None
    groups: dict[str, Group] = field(default_factory=lambda: defaultdict(Group))


class Costs:
    """`time` and timed effects of executions, remembered between runs of the same program.

    An execution is known by its operands. Windows inside their buffer are told apart by their size and by
    their start modulo 64 elements alone: that decides bank conflicts and alignment.
    """

    def __init__(self, parameters: Lookup) -> None:
        self.parameters = parameters
        self.known: dict[tuple[Any, ...], tuple[Use, tuple[Timed, ...]]] = {}
        self.tensor: dict[int, str] = {}
        self.units: dict[Primitive, set[str]] = defaultdict(set)

    def of(self, instruction: Instruction, warp: Warp, held: list[Held]) -> tuple[Use, tuple[Timed, ...]]:
        """Cost and effects of the execution by `warp`; its fragment operands are appended to `held`."""
        env = warp.env
        values: list[Any] = []
        key: list[Any] = [id(instruction), warp.rank]
        for _, closure in instruction.operands:
            value = closure(env)
            values.append(value)
            key.append(_key(value, held))
        name = tuple(key)
        found = self.known.get(name)
        if found is None:
            names = (name for name, _ in instruction.operands)
            op = Op(instruction.site, dict(zip(names, values, strict=True)), warp.rank)
            use = instruction.primitive.time(op, self.parameters)
            timed = tuple(e for e in instruction.primitive.effects(op) if isinstance(e, Timed))
            found = self.known[name] = (use, timed)
            self.units[instruction.primitive].update(use.units)
            if use.l2_read or use.l2_write:
                self.tensor[id(instruction)] = next(
                    (v.buffer.name for v in values if type(v) is fx.Region and v.buffer.space == "global"), ""
                )
        return found


def _key(value: Any, held: list[Held]) -> Any:
    kind = type(value)
    if kind is Held:
        held.append(value)
        return None
    if kind is fx.Region:
        start, size, shape = value.start, value.size, value.buffer.shape
        for a, s, n in zip(start, size, shape, strict=True):
            if a < 0 or a + s > n:
                return (id(value.buffer), start, size)
        return (id(value.buffer), tuple([a & 63 for a in start]), size, True)
    if kind is fx.BarrierSlot:
        return (value.name, value.index)
    if kind is tuple:
        return tuple([_key(v, held) for v in value])
    return value


class Clock:
    """Runs one CTA on the clock. `l2_bytes`: bytes/cycle between L2 and this SM."""

    def __init__(
        self, instance: Instance, program: Program, costs: Costs, l2_bytes: float, block: int, trips: Trips
    ) -> None:
        self.costs = costs
        self.l2_bytes = l2_bytes
        self.count = instance.warps
        entry = entry_budget(instance)
        self.agents = [Agent(w, program.run(w, trips), entry) for w in program.warps(block)]
        self.free: dict[tuple[str, int], float] = defaultdict(float)
        self.barriers: dict[fx.BarrierSlot, Barrier] = {}
        self.meetings: dict[int, Meeting] = defaultdict(Meeting)
        self.pool = 0
        self.growing: list[tuple[Agent, int]] = []
        self.heap: list[tuple[float, int]] = [(0.0, a.warp.index) for a in self.agents]
        self.seen = Timeline()
        self.alive = self.count
        self.end = 0.0

    def run(self) -> Timeline:
        """The CTA from its first instruction to its last completion. Raises Stuck."""
        heap, agents = self.heap, self.agents
        steps = 0
        while heap:
            time, index = heapq.heappop(heap)
            agent = agents[index]
            if agent.pending is None:
                ready = self.fetch(agent, time)
                if ready is None:
                    self.alive -= 1
                    self.end = max(self.end, time)
                    continue
                if ready > time:
                    heapq.heappush(heap, (ready, index))
                    continue
            self.execute(agent, time)
            steps += 1
            if steps > MAX_STEPS:
                raise Stuck((), f"the run was cut off after {MAX_STEPS} instructions")
        if self.alive:
            waiting = tuple(a.pending.instruction for a in agents if a.pending is not None)
            raise Stuck(waiting, f"{self.alive} of {self.count} warps wait for ever")
        self.seen.cycles = self.end
        return self.seen

    def fetch(self, agent: Agent, time: float) -> float | None:
        """Fetch and cost the warp's next instruction; when its operands are ready, None at the end."""
        try:
            instruction = agent.steps.send(agent.result)
        except StopIteration:
            return None
        held: list[Held] = []
        use, effects = self.costs.of(instruction, agent.warp, held)
        agent.pending = Pending(instruction, use, effects, tuple(held), time)
        return max([time, *(h.first for h in held)])

    def execute(self, agent: Agent, time: float) -> None:
        """Start the pending instruction at `time` or as soon as its units are free."""
        pending = agent.pending
        assert pending is not None
        instruction, use = pending.instruction, pending.use
        part = agent.warp.index % SCHEDULERS
        if pending.since < time:
            self.stall("operands", agent, pending, time - pending.since)
        begin = self.reserve(("issue", part), "issue", time, use.issue, use.issue / SCHEDULERS) - use.issue
        end = begin + use.issue
        for unit, cycles in use.units.items():
            if unit in PARTITIONED:
                done = self.reserve((unit, part), unit, time, cycles * SCHEDULERS, cycles)
                begin_unit = done - cycles * SCHEDULERS
            else:
                done = self.reserve((unit, -1), unit, time, cycles, cycles)
                begin_unit = done - cycles
            self.seen.units[unit, instruction.span.line] += cycles
            end = max(end, done)
            if not use.asynchronous:
                begin = max(begin, begin_unit)
        if use.l2_read or use.l2_write:
            end = max(end, self.ask_memory(instruction, use, time))
        after = begin + use.issue
        last = end + use.latency
        for operand in pending.operands:
            last = max(last, operand.last + use.latency)
        self.end = max(self.end, last if use.l2_write or use.asynchronous else after)
        self.complete(agent, pending, after, end, last, begin + use.latency)

    def reserve(
        self, resource: tuple[str, int], unit: str, time: float, cycles: float, share: float
    ) -> float:
        """Take a resource for `cycles` from `time` on, after those who came before; when it is done."""
        done = max(time, self.free[resource]) + cycles
        self.free[resource] = done
        self.seen.busy[unit] += share
        self.seen.part[resource] += cycles
        return done

    def ask_memory(self, instruction: Instruction, use: Use, time: float) -> float:
        asked = use.l2_read + use.l2_write
        tensor = self.costs.tensor.get(id(instruction), "")
        self.seen.tensors[tensor, "read"] += use.l2_read
        self.seen.tensors[tensor, "write"] += use.l2_write
        if not use.asynchronous:
            self.seen.accesses["bytes"] += asked
            self.seen.accesses["lanes"] += 32 * use.units.get("lsu", 1)
        return self.reserve(("l2", -1), "l2", time, asked / self.l2_bytes, asked / self.l2_bytes)

    def complete(
        self, agent: Agent, pending: Pending, after: float, end: float, last: float, first: float
    ) -> None:
        """Apply the effects; the warp goes on at `after`, later where the instruction blocks it."""
        use, result = pending.use, pending.instruction.site.result
        if not isinstance(result, FragmentType):
            agent.result = None
            if not use.asynchronous:
                after += use.latency
        elif use.asynchronous:
            # Whoever uses it has waited for its group.
            agent.result = Held(result, after, after)
        else:
            agent.result = Held(result, first, last)
        for effect in pending.effects:
            kind = type(effect)
            if kind is fx.Wait or kind is fx.Rendezvous or kind is fx.SetRegisters:
                if not self.block(agent, effect, after):
                    return
                continue
            if kind is fx.WaitGroup:
                assert isinstance(effect, fx.WaitGroup)
                ready = self.groups_done(agent, effect)
                if ready > after:
                    cause = "tensor" if effect.group == "wgmma" else "copy"
                    self.stall(cause, agent, pending, ready - after)
                    after = ready
            else:
                self.signal(agent, effect, after, end, last)
        self.go_on(agent, after)

    def go_on(self, agent: Agent, time: float) -> None:
        """The warp's instruction is over at `time`."""
        pending = agent.pending
        assert pending is not None
        place = self.place(agent, pending)
        self.seen.lines[place, agent.warp.index] += time - pending.since
        agent.pending = None
        heapq.heappush(self.heap, (time, agent.warp.index))

    def stall(self, cause: str, agent: Agent, pending: Pending, cycles: float) -> None:
        self.seen.stalls[cause, self.place(agent, pending), agent.warp.index] += cycles

    def place(self, agent: Agent, pending: Pending) -> Place:
        return (pending.instruction.span.line, agent.warp.role.name, pending.instruction.task)

    # --- effects ------------------------------------------------------------------------------------------

    def signal(self, agent: Agent, effect: Timed, after: float, end: float, last: float) -> None:
        """Effects that let the warp go on."""
        match effect:
            case fx.Async(group=group, barrier=slot, bytes=count):
                if group is not None:
                    reads, writes = agent.groups[group].open
                    agent.groups[group].open = (max(reads, end), max(writes, last))
                if slot is not None and (own := mirrored(slot)) in self.barriers:
                    self.deliver(self.barriers[own], last, "copy", bytes=-count)
            case fx.Commit(group=group):
                state = agent.groups[group]
                state.closed.append(state.open)
                state.open = (0.0, 0.0)
            case fx.InitBarrier(slot=slot, arrivals=arrivals):
                self.barriers[slot] = Barrier(arrivals, arrivals)
            case fx.Arrive(slot=slot, expect_bytes=count):
                if (own := mirrored(slot)) in self.barriers:
                    self.deliver(self.barriers[own], after, "warps", arrivals=1, bytes=count)
            case fx.ArriveCopied(slot=slot, arrivals=arrivals, counted=counted):
                state = agent.groups["cp_async"]
                copied = max((writes for _, writes in (state.open, *state.closed)), default=0.0)
                if slot in self.barriers:
                    arrivals = 0 if counted else arrivals
                    self.deliver(self.barriers[slot], max(after, copied), "copy", arrivals=arrivals)

    def groups_done(self, agent: Agent, effect: fx.WaitGroup) -> float:
        closed = agent.groups[effect.group].closed
        settled = closed[: max(0, len(closed) - effect.pending)]
        if not effect.reads_only:
            del closed[: len(settled)]
        return max((reads if effect.reads_only else writes for reads, writes in settled), default=0.0)

    def deliver(
        self, barrier: Barrier, time: float, cause: str, *, arrivals: int = 0, bytes: int = 0
    ) -> None:
        """Arrivals or bytes reach an mbarrier at `time`; completes the phase when they are the last."""
        barrier.pending -= arrivals
        barrier.transactions += bytes
        if time >= barrier.gathered:
            barrier.gathered, barrier.cause = time, cause
        if barrier.pending > 0 or barrier.transactions != 0:
            return
        barrier.phase += 1
        barrier.pending = barrier.arrivals
        barrier.done, barrier.done_cause = barrier.gathered, barrier.cause
        waiting, barrier.waiting = barrier.waiting, []
        for agent, parity in waiting:
            if (barrier.phase & 1) != (parity & 1):
                self.wake(agent, barrier.done, barrier.done_cause)
            else:
                barrier.waiting.append((agent, parity))

    def block(self, agent: Agent, effect: Timed, after: float) -> bool:
        """Whether the warp goes on at once; if not, whoever releases it calls `wake`."""
        pending = agent.pending
        assert pending is not None
        match effect:
            case fx.Wait(slot=slot, parity=parity):
                barrier = self.barriers.get(slot)
                if barrier is None:
                    raise Stuck((pending.instruction,), f"{slot.name}[{slot.index}] is not initialized")
                if (barrier.phase & 1) != (parity & 1):
                    self.wake(agent, max(after, barrier.done), barrier.done_cause, after)
                else:
                    barrier.waiting.append((agent, parity))
            case fx.Rendezvous(id=number, warps=warps, blocks=blocks):
                meeting = self.meetings[number]
                meeting.arrived += 1
                meeting.latest = max(meeting.latest, after)
                if blocks:
                    meeting.came.append(agent)
                if meeting.arrived >= (warps or self.count):
                    del self.meetings[number]
                    for one in meeting.came:
                        self.wake(one, meeting.latest, "warps")
                return not blocks
            case fx.SetRegisters(count=count, grow=grow):
                need = (count - agent.registers) * 32
                if grow and self.pool < need:
                    self.growing.append((agent, count))
                    return False
                self.pool -= need
                agent.registers = count
                if not grow:
                    self.grow(after)
                return True
        return False

    def grow(self, time: float) -> None:
        """Give registers from the pool to those who wait for them, in their order."""
        while self.growing:
            agent, count = self.growing[0]
            need = (count - agent.registers) * 32
            if self.pool < need:
                return
            self.growing.pop(0)
            self.pool -= need
            agent.registers = count
            self.wake(agent, time, "warps")

    def wake(self, agent: Agent, time: float, cause: str, since: float | None = None) -> None:
        """End the wait of a blocked warp at `time`, not before its own instruction could end."""
        pending = agent.pending
        assert pending is not None
        earliest = since if since is not None else pending.since + pending.use.issue + pending.use.latency
        if time > earliest:
            self.stall(cause, agent, pending, time - earliest)
        self.go_on(agent, max(time, earliest))
