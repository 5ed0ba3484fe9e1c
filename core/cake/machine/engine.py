"""The engine: runs the CTAs of one cluster and observes facts and, with inputs, values.

Asynchronous operations take effect at their issue and are *known* complete only through synchronization: a
race is found by happens-before whatever the schedule, so one schedule suffices. Warps run in turn until each
blocks. Sources: PTX ISA, "Memory Consistency Model"; mbarrier and async-group sections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cake.diagnostics import NOWHERE, Span
from cake.ir.instance import Instance
from cake.ir.types import FragmentType
from cake.kinds.primitive import Op
from cake.machine import accesses, endings, overlays, registers, synchronization, tensor_memory
from cake.machine import effects as fx
from cake.machine import facts as ft
from cake.machine.agents import Agent, FragmentValue, Reach
from cake.machine.barriers import Barrier, Clock, Meeting
from cake.machine.memory import Memory
from cake.machine.program import Instruction, Program
from cake.machine.shadow import Shadow

MAX_STEPS = 200_000
MAX_FINDINGS = 200
SMALL_GRID = 4
"""Clusters up to which the whole grid is executed for its facts."""
Array = np.ndarray[Any, Any]


HANDLERS: Mapping[type, Callable[..., None]] = {
    **accesses.HANDLERS,
    **synchronization.HANDLERS,
    **registers.HANDLERS,
}
"""What carries an effect out: `handler(engine, agent, instruction, effect)`."""


class Engine:
    """Runs one cluster, or one CTA where there are no clusters: CTAs `first` and the following.

    `warps` of one CTA, `count` of the cluster. Agents are numbered through: CTA 0's warps, then CTA 1's.
    """

    def __init__(
        self, instance: Instance, first: int, facts: ft.Facts, memory: Memory | None, program: Program
    ) -> None:
        self.instance = instance
        self.first = first
        self.facts = facts
        self.memory = memory
        self.warps = instance.warps
        self.count = instance.warps * instance.cluster
        entry = registers.entry_budget(instance)
        self.agents: list[Agent] = []
        for cta in range(instance.cluster):
            for warp in program.warps(first + cta):
                index = len(self.agents)
                clock = Clock.zero(self.count)
                clock.seen[index] = 1
                self.agents.append(Agent(warp, program.run(warp), clock, entry, index, cta))
        tensors = {b.name: Shadow.of(b) for b in instance.buffers.values() if b.space == "global"}
        own = [b for b in instance.buffers.values() if b.space != "global"]
        self.shadows = [{**tensors, **{b.name: Shadow.of(b) for b in own}} for _ in range(instance.cluster)]
        """Per CTA, by buffer; those of global tensors are the same in all."""
        self.aliases = overlays.aliases(instance)
        self.barriers: dict[fx.BarrierSlot, Barrier] = {}
        self.meetings: dict[tuple[int, int], Meeting] = {}
        self.cluster = Meeting(self.count, NOWHERE, clock=Clock.zero(self.count))
        self.init_epochs: dict[fx.BarrierSlot, tuple[int, int]] = {}
        self.pools = [0] * instance.cluster
        self.reaches: list[Reach] = []
        self.tensor: dict[int, tensor_memory.Allocation] = {}
        self.relinquished: dict[int, Span] = {}
        self.events = 0
        self.firsts: dict[tuple[Instruction, int], int] = {}
        self.copies: list[tuple[int, Instruction, fx.BarrierSlot]] = []
        self.signals: dict[fx.BarrierSlot, dict[Span, None]] = {}
        self.together: dict[tuple[Instruction, int, int], list[int]] = {}
        self.arrived: dict[fx.BarrierSlot, set[int]] = {}

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
        for slot, warps in self.arrived.items():
            most = self.facts.arrivers.get(slot.name, 0)
            self.facts.arrivers[slot.name] = max(most, len(warps))
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
            synchronization.cluster_complete(self)

    def reconverge(self, agent: Agent) -> None:
        """After one_thread() the warp's lanes meet again and share what the one lane knew."""
        agent.clock.events |= agent.lane_events

    def execute(self, agent: Agent, instruction: Instruction) -> Any:
        self.facts.steps += 1
        if instruction.primitive.warpgroup:
            key = (instruction, agent.cta, agent.warp.index // 4)
            group = self.together.setdefault(key, [0, 0, 0, 0])
            group[agent.warp.index % 4] += 1
        agent.executed += 1
        op = instruction.op(agent.warp.env, agent.warp.rank)
        fragments = [value for value in op.args.values() if type(value) is FragmentValue]
        for value in op.args.values():
            if type(value) is fx.Region and value.buffer.space == "shared":
                accesses.inside(self, agent, instruction, fx.Inside(value))
        event = -1
        asynchronous = ""
        handed: tuple[str, ...] = ()
        for effect in instruction.primitive.effects(op):
            if type(effect) is fx.Async and (effect.fragment or effect.result):
                asynchronous, event = effect.fragment, self.events + 1
                handed = (effect.fragment, *effect.registers)
            HANDLERS[type(effect)](self, agent, instruction, effect)
        taken = [op.args.get(name) for name in handed]
        for fragment in fragments:
            self.touch(agent, instruction, fragment, any(fragment is one for one in taken))
        array = None
        if self.memory is not None:
            self.memory.cta = agent.cta
            array = instruction.primitive.value(op, self.memory)
        result = instruction.site.result
        if instruction.primitive.scalar:
            return self.number(instruction, op, array)
        if not isinstance(result, FragmentType):
            return None
        return FragmentValue(result, array, instruction, event, -1 if asynchronous else agent.executed)

    def number(self, instruction: Instruction, op: Op, found: Array | None) -> int:
        """A number from memory: what is there, or without values an extreme of what it may be, the same for
        all that read the same place."""
        low, high = int(op.args["low"]), int(op.args["high"])
        if found is None:
            return chosen(self.facts.assignment, op, low, high)
        value = int(found)
        if not low <= value <= high:
            self.find(ft.OutsideContract(instruction.span, value, low, high))
        return min(max(value, low), high)

    def touch(
        self, agent: Agent, instruction: Instruction, fragment: FragmentValue, handed_over: bool
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

    def slot(self, agent: Agent, slot: fx.BarrierSlot) -> fx.BarrierSlot:
        """The mbarrier by the rank of its CTA."""
        if self.instance.cluster == 1 or slot.cta >= 0:
            return slot
        return fx.BarrierSlot(slot.name, slot.index, agent.cta)

    def phase(self, slot: fx.BarrierSlot) -> int:
        """Completed phases of an mbarrier; 0 where there is none."""
        barrier = self.barriers.get(slot)
        return barrier.phase if barrier is not None else 0

    def block_of(self, index: int) -> int:
        """The CTA of agent number `index`, in the grid."""
        return self.first + index // self.warps

    def known(self, agent: Agent) -> int:
        """Completed events known to who executes: the elected lane also knows its own groups'."""
        return agent.clock.events | agent.lane_events if agent.warp.elected else agent.clock.events


@dataclass(slots=True)
class Run:
    """What one or more CTAs did. `outputs` and `written` per output tensor, only with inputs."""

    facts: ft.Facts
    outputs: dict[str, Array]
    written: dict[str, Array]


Assignment = Literal["low", "high", "mixed"]
ASSIGNMENTS: tuple[Assignment, ...] = ("mixed", "high", "low")
"""What numbers from memory are taken to be where values are not known."""


def chosen(assignment: str, op: Op, low: int, high: int) -> int:
    """The number that a place in memory holds under an assignment: a function of the place alone."""
    if assignment != "mixed":
        return low if assignment == "low" else high
    place = sum(start * (7 + axis) for axis, start in enumerate(op.region("window").start))
    return (low, high, low + (high - low) // 2, min(high, low + 1))[place % 4]


def usual_blocks(instance: Instance) -> list[int]:
    """CTAs that stand for all: those of a small grid; else of the first two clusters and of the last."""
    size, blocks = instance.cluster, instance.blocks
    if blocks <= SMALL_GRID * size:
        return list(range(blocks))
    return [c * size + cta for c in (0, 1, blocks // size - 1) for cta in range(size)]


def run(
    instance: Instance,
    *,
    inputs: Mapping[str, Array] | None = None,
    blocks: Sequence[int] | None = None,
    assignment: Assignment = "mixed",
) -> Run:
    """Execute the clusters of CTAs `blocks` (default: all with inputs, else `usual_blocks`), numbers from
    memory as `assignment` says where there are no inputs.

    Facts are always observed; with `inputs` (name -> array of the parameter's shape), values as well.
    Raises cake.ir.evaluate.EvaluationError where an index expression has no value.
    """
    size = instance.cluster
    if blocks is None:
        blocks = usual_blocks(instance) if inputs is None else range(instance.blocks)
    clusters = list(dict.fromkeys(block // size for block in blocks))
    facts = ft.Facts(instance, tuple(c * size + cta for c in clusters for cta in range(size)))
    facts.assignment = assignment
    memory = Memory(instance, inputs) if inputs is not None else None
    program = Program(instance)
    facts.taken = program.taken
    ended: list[Engine] = []
    for cluster in clusters:
        if memory is not None:
            memory.fresh()
        engine = Engine(instance, cluster * size, facts, memory, program)
        engine.run()
        if inputs is None:
            endings.between_clusters(ended, engine)
            ended.append(engine)
        if facts.findings:
            break
    else:
        if inputs is None and len(clusters) == instance.blocks // size:
            endings.unwritten(ended)
    if memory is None:
        return Run(facts, {}, {})
    return Run(facts, {name: memory.arrays[name] for name in memory.written}, memory.written)
