"""The engine: runs one CTA of an instance and observes facts and, with inputs, values.

Asynchronous operations take effect at their issue and are *known* complete only through synchronization: a
race is found by happens-before whatever the schedule, so one schedule suffices. Warps run in turn until each
blocks. Sources: PTX ISA, "Memory Consistency Model"; mbarrier and async-group sections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cake.diagnostics import Span
from cake.ir.instance import Instance
from cake.ir.types import Buffer, FragmentType
from cake.machine import effects as fx
from cake.machine import endings
from cake.machine import facts as ft
from cake.machine.agents import Agent, FragmentValue
from cake.machine.barriers import Barrier, Clock, Meeting
from cake.machine.memory import Memory
from cake.machine.program import Instruction, Program
from cake.machine.shadow import Knowledge, Record, Shadow

MAX_STEPS = 200_000
MAX_FINDINGS = 200
Array = np.ndarray[Any, Any]


class Engine:
    """Runs one CTA."""

    def __init__(
        self, instance: Instance, block: int, facts: ft.Facts, memory: Memory | None, program: Program
    ) -> None:
        self.instance = instance
        self.block = block
        self.facts = facts
        self.memory = memory
        self.count = instance.warps
        entry = min(255, 65536 // instance.threads) // 8 * 8
        self.agents = [
            Agent(w, program.run(w), Clock.zero(self.count), entry, groups={}) for w in program.warps(block)
        ]
        for agent in self.agents:
            agent.clock.seen[agent.warp.index] = 1
        self.shadows = {name: Shadow.of(buffer) for name, buffer in instance.buffers.items()}
        self.barriers: dict[fx.BarrierSlot, Barrier] = {}
        self.meetings: dict[int, Meeting] = {}
        self.init_epochs: dict[fx.BarrierSlot, tuple[int, int]] = {}
        self.pool = 0
        self.events = 0
        self.firsts: dict[tuple[Instruction, int], int] = {}
        self.copies: list[tuple[int, Instruction, fx.BarrierSlot]] = []
        self.signals: dict[fx.BarrierSlot, dict[Span, None]] = {}
        self.together: dict[tuple[Instruction, int], list[int]] = {}
        self.arrived: dict[fx.BarrierSlot, set[int]] = {}
        self.handlers: dict[type, Callable[..., None]] = {
            fx.Read: self._read,
            fx.Write: self._write,
            fx.Aligned: self._aligned,
            fx.Inside: self._inside,
            fx.Aligned: self._aligned,
            fx.Inside: self._inside,
            fx.Async: self._async,
            fx.Commit: self._commit,
            fx.WaitGroup: self._wait_group,
            fx.InitBarrier: self._init,
            fx.Arrive: self._arrive,
            fx.Wait: self._wait,
            fx.Fence: self._fence,
            fx.Rendezvous: self._rendezvous,
            fx.SetRegisters: self._set_registers,
        }

    # --- running ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end, a deadlock or the step limit; findings go to `facts`."""
        progress = True
        while progress and self.facts.steps < MAX_STEPS and len(self.facts.findings) < MAX_FINDINGS:
            progress = False
            for agent in self.agents:
                if not agent.finished and (agent.blocked is None or agent.blocked()):
                    self.resume(agent)
                    progress = True
        alive = [agent for agent in self.agents if not agent.finished]
        if alive and self.facts.steps < MAX_STEPS:
            endings.deadlock(self, alive)
        if not alive:
            endings.exit_checks(self)

    def resume(self, agent: Agent) -> None:
        """Run one warp until it blocks or ends."""
        agent.blocked = agent.waits = None
        send = agent.steps.send
        try:
            while agent.blocked is None:
                was_elected = agent.warp.elected
                instruction = send(agent.result)
                if was_elected and not agent.warp.elected:
                    self.reconverge(agent)
                agent.result = self.execute(agent, instruction)
                if self.facts.steps >= MAX_STEPS:
                    self.find(ft.Runaway(instruction.span, self.facts.steps))
                    return
        except StopIteration:
            self.reconverge(agent)
            agent.finished = True

    def reconverge(self, agent: Agent) -> None:
        """After one_thread() the warp's lanes meet again and share what the one lane knew."""
        agent.clock.events |= agent.lane_events

    def execute(self, agent: Agent, instruction: Instruction) -> Any:
        self.facts.steps += 1
        if instruction.primitive.warpgroup:
            group = self.together.setdefault((instruction, agent.warp.index // 4), [0, 0, 0, 0])
            group[agent.warp.index % 4] += 1
        agent.executed += 1
        op = instruction.op(agent.warp.env, agent.warp.rank)
        fragments = [value for value in op.args.values() if type(value) is FragmentValue]
        for value in op.args.values():
            if type(value) is fx.Region and value.buffer.space == "shared":
                self._inside(agent, instruction, fx.Inside(value))
        event = -1
        asynchronous = ""
        for effect in instruction.primitive.effects(op):
            if type(effect) is fx.Async and effect.fragment:
                asynchronous, event = effect.fragment, self.events + 1
            self.handlers[type(effect)](agent, instruction, effect)
        for fragment in fragments:
            self.touch(agent, instruction, fragment, asynchronous and fragment is op.args.get(asynchronous))
        array = instruction.primitive.value(op, self.memory) if self.memory is not None else None
        result = instruction.site.result
        if not isinstance(result, FragmentType):
            return None
        return FragmentValue(result, array, instruction, event, -1 if asynchronous else agent.executed)

    def touch(
        self, agent: Agent, instruction: Instruction, fragment: FragmentValue, handed_over: bool | str
    ) -> None:
        """Registers in use: by the tensor cores only after a fence, by others only after completion."""
        if handed_over:
            if fragment.event < 0 and fragment.modified > agent.register_fence:
                self.find(ft.FragmentHazard("unfenced", instruction.span, fragment.producer.span))
        elif fragment.event >= 0 and not (self.known(agent) >> fragment.event) & 1:
            self.find(ft.FragmentHazard("in_flight", instruction.span, fragment.producer.span))

    def find(self, finding: ft.Finding) -> None:
        if finding not in self.facts.findings:
            self.facts.findings.append(finding)

    def known(self, agent: Agent) -> int:
        """Completed events known to who executes: the elected lane also knows its own groups'."""
        return agent.clock.events | agent.lane_events if agent.warp.elected else agent.clock.events

    # --- memory -------------------------------------------------------------------------------------------

    def _read(self, agent: Agent, instruction: Instruction, effect: fx.Read) -> None:
        self.access(agent, instruction, effect.buffer, effect.box, write=False)

    def _write(self, agent: Agent, instruction: Instruction, effect: fx.Write) -> None:
        self.access(agent, instruction, effect.buffer, effect.box, write=True)

    def _aligned(self, agent: Agent, instruction: Instruction, effect: fx.Aligned) -> None:
        offset = 0
        for start, extent in zip(effect.start, effect.buffer.shape, strict=True):
            offset = offset * extent + start
        offset *= effect.buffer.dtype.bytes
        if offset % effect.bytes:
            self.find(ft.Misaligned(instruction.name, instruction.span, effect.buffer, offset, effect.bytes))

    def _inside(self, agent: Agent, instruction: Instruction, effect: fx.Inside) -> None:
        region = effect.region
        if not region.inside:
            finding = ft.OutOfBounds(
                instruction.name, instruction.span, region.buffer, region.start, region.size
            )
            self.find(finding)

    def access(
        self,
        agent: Agent,
        instruction: Instruction,
        buffer: Buffer,
        box: fx.Box,
        *,
        write: bool,
        event: int = -1,
        proxy: str = "generic",
        completion: fx.Group | fx.BarrierSlot | None = None,
    ) -> None:
        for _, extent in box:
            if extent == 0:
                return
        shadow = self.shadows[buffer.name]
        if buffer.space == "global" and not buffer.output:
            return
        index = agent.warp.index
        role = agent.warp.role.name
        new = Record(write, event, index, agent.clock.seen[index], box, instruction, role, proxy, completion)
        clock = agent.clock.published if proxy == "async" else agent.clock.seen
        if event < 0 or proxy == "generic":
            # Program order orders a warp's own generic accesses.
            clock = clock if clock[index] >= new.epoch else [*clock[:index], new.epoch, *clock[index + 1 :]]
        for old in shadow.conflicts(new, Knowledge(clock, self.known(agent))):
            self.race(agent, old, new, buffer)
        if not write and not shadow.holds(box):
            self.find(ft.UninitializedRead(self.access_of(new, buffer)))
        shadow.add(new)
        if write and event < 0:
            self.firsts.setdefault((instruction, index), new.epoch)
        if write:
            shadow.mark(box)

    def race(self, agent: Agent, old: Record, new: Record, buffer: Buffer) -> None:
        cause: ft.Cause
        if old.event >= 0:
            cause = self.unfinished(agent, old)
        elif agent.clock.seen[old.warp] >= old.epoch or old.warp == new.warp:
            cause = "unfenced"
        elif old.write and not new.write and self.told_before(agent, old):
            cause = "overtaken"
        else:
            cause = "unordered"
        earlier, later = self.access_of(old, buffer), self.access_of(new, buffer)
        for known in self.facts.of(ft.Race):
            same = (known.earlier.span, known.later.span, known.cause, known.earlier.buffer.name)
            if same == (earlier.span, later.span, cause, buffer.name):
                return
        self.find(ft.Race(earlier, later, cause))

    def told_before(self, agent: Agent, old: Record) -> bool:
        """Whether `agent` knows of an earlier execution of the instruction, whose bytes this one replaces."""
        return self.firsts[old.instruction, old.warp] <= agent.clock.seen[old.warp]

    def unfinished(self, agent: Agent, old: Record) -> ft.Cause:
        """What is amiss with an asynchronous operation that `agent` does not know to be complete. Of one that
        completes in its warp: `agent` does not even know of its issue, or its lanes have not met since."""
        issuer = self.agents[old.warp]
        if isinstance(old.completion, fx.BarrierSlot):
            waited = agent.clock.phases.get(old.completion, 0) > 0
            return "overtaken" if waited and issuer is not agent else "incomplete"
        if issuer is agent:
            return "unordered" if agent.lane_events >> old.event & 1 else "incomplete"
        return "incomplete" if agent.clock.seen[old.warp] >= old.epoch else "unordered"

    def access_of(self, record: Record, buffer: Buffer) -> ft.Access:
        i = record.instruction
        proxy: fx.Proxy = "async" if record.proxy == "async" else "generic"
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
        )

    def _async(self, agent: Agent, instruction: Instruction, effect: fx.Async) -> None:
        self.events += 2
        reads, writes = self.events, self.events - 1
        parts: tuple[fx.Read | fx.Write, ...] = (*effect.reads, *effect.writes)
        for part in parts:
            write = isinstance(part, fx.Write)
            self.access(
                agent,
                instruction,
                part.buffer,
                part.box,
                write=write,
                event=writes if write else reads,
                proxy=effect.proxy,
                completion=effect.group or effect.barrier,
            )
        if effect.group is not None:
            agent.group(effect.group).open.append((1 << reads, 1 << writes, instruction.span))
        if effect.barrier is not None:
            barrier = self.barrier(agent, instruction, effect.barrier, asynchronous=True)
            self.copies.append((writes, instruction, effect.barrier))
            if barrier is not None:
                barrier.gathered.events |= 1 << reads | 1 << writes
                barrier.transactions -= effect.bytes
                barrier.delivered += effect.bytes
                barrier.copies[instruction.span] = None
                barrier.advance()

    # --- groups -------------------------------------------------------------------------------------------

    def _commit(self, agent: Agent, instruction: Instruction, effect: fx.Commit) -> None:
        groups = agent.group(effect.group)
        groups.closed.append(groups.open)
        groups.open = []

    def _wait_group(self, agent: Agent, instruction: Instruction, effect: fx.WaitGroup) -> None:
        groups = agent.group(effect.group)
        settled = len(groups.closed) - effect.pending
        bits = 0
        for group in groups.closed[: max(0, settled)]:
            for reads, writes, _ in group:
                bits |= reads if effect.reads_only else reads | writes
        if not effect.reads_only and settled > 0:
            del groups.closed[:settled]
        if effect.group == "wgmma":
            agent.clock.events |= bits
        else:
            agent.lane_events |= bits

    # --- mbarriers ----------------------------------------------------------------------------------------

    def _init(self, agent: Agent, instruction: Instruction, effect: fx.InitBarrier) -> None:
        old = self.barriers.get(effect.slot)
        if old is not None:
            self.find(ft.BarrierMisuse("reinitialized", effect.slot, instruction.span, old.init))
        start = Clock.zero(self.count)
        barrier = Barrier(
            effect.slot, effect.arrivals, start.copy(), [start], instruction.span, effect.arrivals
        )
        self.barriers[effect.slot] = barrier
        self.init_epochs[effect.slot] = (agent.warp.index, agent.clock.seen[agent.warp.index])

    def barrier(
        self, agent: Agent, instruction: Instruction, slot: fx.BarrierSlot, *, asynchronous: bool = False
    ) -> Barrier | None:
        """The mbarrier, if it is ready for use by this warp; findings where it is not."""
        declared = self.instance.barriers[slot.name]
        barrier = self.barriers.get(slot)
        if barrier is None or not 0 <= slot.index < declared.count:
            self.find(ft.BarrierMisuse("uninitialized", slot, instruction.span))
            return None
        warp, epoch = self.init_epochs[slot]
        if warp != agent.warp.index and agent.clock.seen[warp] < epoch:
            self.find(ft.BarrierMisuse("init_unordered", slot, instruction.span, barrier.init))
        if not barrier.fenced and (asynchronous or warp != agent.warp.index):
            self.find(ft.BarrierMisuse("init_unfenced", slot, instruction.span, barrier.init))
            barrier.fenced = True
        return barrier

    def _arrive(self, agent: Agent, instruction: Instruction, effect: fx.Arrive) -> None:
        self.signals.setdefault(effect.slot, {})[instruction.span] = None
        self.arrived.setdefault(effect.slot, set()).add(agent.warp.index)
        barrier = self.barrier(agent, instruction, effect.slot)
        if barrier is None:
            return
        if effect.expect_bytes:
            barrier.transactions += effect.expect_bytes
            barrier.expected += effect.expect_bytes
            barrier.expects[instruction.span] = None
        if barrier.pending == 0:
            self.find(ft.BarrierMisuse("too_many_arrivals", effect.slot, instruction.span, barrier.init))
            return
        if agent.clock.phases.get(effect.slot, 0) < barrier.phase:
            self.find(ft.BarrierMisuse("unordered_arrival", effect.slot, instruction.span, barrier.init))
        barrier.pending -= 1
        barrier.arrivers.add(agent.warp.index)
        alone = barrier.arrivers == {agent.warp.index} and not barrier.expected
        barrier.gathered.join(self.release(agent))
        if barrier.advance() and alone:
            agent.clock.phases[effect.slot] = barrier.phase

    def release(self, agent: Agent) -> Clock:
        """What this warp makes known by a release; its later accesses get a later epoch."""
        agent.clock.events |= agent.lane_events
        out = agent.clock.copy()
        agent.clock.seen[agent.warp.index] += 1
        return out

    def _wait(self, agent: Agent, instruction: Instruction, effect: fx.Wait) -> None:
        barrier = self.barrier(agent, instruction, effect.slot)
        if barrier is None:
            return

        needed = barrier.passing(agent.clock.phases.get(effect.slot, 0), effect.parity)
        if needed == 0:
            self.facts.idle_waits[effect.slot.name, agent.warp.role.name] = instruction.span

        def ready() -> bool:
            if barrier.phase < needed:
                return False
            if barrier.phase > needed:
                self.find(ft.BarrierMisuse("overrun", effect.slot, instruction.span, barrier.init))
            agent.clock.join(barrier.history[needed])
            return True

        if not ready():
            agent.blocked = ready
            agent.waits = (instruction, f"the phase of parity {effect.parity & 1}", effect.slot)

    # --- fences, rendezvous, registers --------------------------------------------------------------------

    def _fence(self, agent: Agent, instruction: Instruction, effect: fx.Fence) -> None:
        index = agent.warp.index
        if effect.kind == "async_proxy":
            agent.clock.published[index] = agent.clock.seen[index]
            agent.clock.seen[index] += 1
        elif effect.kind == "wgmma":
            agent.register_fence = agent.executed
        else:
            for slot, (warp, _) in self.init_epochs.items():
                if warp == index:
                    self.barriers[slot].fenced = True

    def _rendezvous(self, agent: Agent, instruction: Instruction, effect: fx.Rendezvous) -> None:
        if not 0 <= effect.id <= 15 or (effect.id == 0 and effect.warps):
            self.find(ft.BarrierId(instruction.span, effect.id))
            return
        warps = effect.warps or self.count
        meeting = self.meetings.get(effect.id)
        if meeting is None:
            meeting = self.meetings[effect.id] = Meeting(warps, instruction.span)
        if meeting.came and meeting.expected != warps:
            counts = (warps, meeting.expected)
            self.find(ft.RendezvousMismatch(effect.id, instruction.span, meeting.span, counts))
        if not meeting.came:
            meeting.expected, meeting.span, meeting.clock = warps, instruction.span, Clock.zero(self.count)
        assert meeting.clock is not None
        # What is known of generations travels with clocks, as the phases of mbarriers do.
        slot = fx.BarrierSlot(f"barrier {effect.id}", 0)
        before = meeting.last.get(agent.warp.index)
        if before is not None and agent.clock.phases.get(slot, 0) <= before[0]:
            self.find(ft.RunAhead(effect.id, instruction.span, before[1]))
        meeting.last[agent.warp.index] = (meeting.generation, instruction.span)
        meeting.came.append(agent.warp.index)
        meeting.clock.join(self.release(agent))
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

    def _set_registers(self, agent: Agent, instruction: Instruction, effect: fx.SetRegisters) -> None:
        """setmaxnreg moves registers between the warps and a pool; growing waits for the pool."""
        need = effect.count - agent.registers
        if not effect.grow:
            self.pool -= need * 32
            agent.registers = effect.count
            return

        def ready() -> bool:
            if self.pool < need * 32:
                return False
            self.pool -= need * 32
            agent.registers = effect.count
            return True

        if not ready():
            agent.blocked = ready
            agent.waits = (instruction, f"registers:{effect.count}", None)


@dataclass(slots=True)
class Run:
    """What one or more CTAs did. `outputs` and `written` per output tensor, only with inputs."""

    facts: ft.Facts
    outputs: dict[str, Array]
    written: dict[str, Array]


def run(
    instance: Instance, *, inputs: Mapping[str, Array] | None = None, blocks: Sequence[int] | None = None
) -> Run:
    """Execute CTAs `blocks` (default: all with inputs, else the first two and the last).

    Facts are always observed; with `inputs` (name -> array of the parameter's shape), values as well.
    Raises cake.ir.evaluate.EvaluationError where an index expression has no value.
    """
    if blocks is None:
        last = instance.blocks - 1
        blocks = range(instance.blocks) if inputs is not None else sorted({0, min(1, last), last})
    facts = ft.Facts(instance, tuple(blocks))
    memory = Memory(instance, inputs) if inputs is not None else None
    program = Program(instance)
    ended: list[Engine] = []
    for block in blocks:
        if memory is not None:
            memory.fresh()
        engine = Engine(instance, block, facts, memory, program)
        engine.run()
        if inputs is None:
            endings.between_ctas(ended, engine)
            ended.append(engine)
        if facts.findings:
            break
    if memory is None:
        return Run(facts, {}, {})
    return Run(facts, {name: memory.arrays[name] for name in memory.written}, memory.written)
