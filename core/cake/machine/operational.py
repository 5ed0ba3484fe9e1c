"""The operational reading of a kernel: what one schedule makes of the values, with no regard to order proven.

The engine decides by happens-before and needs one schedule. Here the same effects and `value` facets are
carried out as hardware may, however the author synchronized. An asynchronous operation reads and writes at
any time between its issue and the moment that a wait demands it. A wait on an mbarrier looks at the parity
of the current phase and at nothing else. The async proxy sees what was published to it, or all. Registers
that the tensor cores own hold nothing. So the verdicts of the engine can be tried against what comes of it.

Sources: PTX ISA, "Memory Consistency Model", "Asynchronous Operations", "mbarrier", "bar/barrier".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cake.ir.instance import Instance
from cake.ir.types import Buffer, FragmentType
from cake.kinds.primitive import Op
from cake.machine import effects as fx
from cake.machine.agents import FragmentValue
from cake.machine.memory import Memory
from cake.machine.overlays import fresh_shared, poisoned
from cake.machine.policies import Policy
from cake.machine.program import Instruction, Program
from cake.machine.registers import entry_budget
from cake.machine.strands import Fault, Gate, Pending, Phase, Promise, Strand, View

MAX_STEPS = 400_000
IN_ORDER = ("wgmma", "tcgen05")
"""Kinds of operations that the hardware carries out in the order of their issue by a warp."""
Array = np.ndarray[Any, Any]


class Execution:
    """One cluster under one policy. After `run`, `outcome` is "done", "deadlock", "runaway" or the fault."""

    def __init__(
        self, instance: Instance, first: int, memory: Memory, program: Program, policy: Policy
    ) -> None:
        self.instance, self.memory, self.policy = instance, memory, policy
        self.warps = instance.warps
        entry = entry_budget(instance)
        self.strands: list[Strand] = []
        for cta in range(instance.cluster):
            for warp in program.warps(first + cta):
                self.strands.append(Strand(warp, program.run(warp), len(self.strands), cta, entry))
        # What the async proxy sees of shared memory: a second copy where it may lag behind.
        self.published = memory.shared
        self.exported = memory.arrays
        if policy.stale:
            own = [fresh_shared(instance) for _ in range(instance.cluster)]
            tensor = [b.name for b in instance.buffers.values() if b.space == "tensor"]
            pairs = zip(memory.shared, own, strict=True)
            self.published = [{**new, **{name: held[name] for name in tensor}} for held, new in pairs]
            # Of global memory, outputs; what other clusters wrote is seen.
            outputs = {name: memory.arrays[name].copy() for name in memory.written}
            self.exported = {**memory.arrays, **outputs}
        self.phases: dict[fx.BarrierSlot, Phase] = {}
        self.gates: dict[tuple[int, int], Gate] = {}
        self.cluster: set[int] = set()
        self.cluster_generation = 0
        self.pools = [0] * instance.cluster
        self.pending: list[Pending] = []
        self.promises: list[Promise] = []
        self.copied: list[fx.Region] = []
        """Written by cp.async since a fence of the CTA."""
        self.steps = 0
        self.outcome = ""

    # --- running ------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Run to the end, a deadlock, a fault or the step limit; the outcome in a word or a sentence."""
        try:
            self.outcome = self._run()
        except Fault as fault:
            self.outcome = str(fault)
        return self.outcome

    def _run(self) -> str:
        while self.steps < MAX_STEPS:
            ready = [s for s in self.strands if not s.finished and (s.blocked is None or s.blocked())]
            strand, pending = self.policy.choose(ready, self.pending)
            if strand is not None:
                self.resume(strand, self.policy.quantum())
            elif pending is not None:
                self.advance(pending)
            elif all(s.finished for s in self.strands):
                return "done"
            else:
                return "deadlock"
            if self.pending and all(s.finished for s in self.strands):
                self.leave()
        return "runaway"

    def leave(self) -> None:
        """All warps have ended: shared memory belongs to somebody else while operations still read it."""
        for shared in {id(s): s for s in (*self.memory.shared, *self.published)}.values():
            shared.update(fresh_shared(self.instance))
        while self.pending:
            self.advance(self.pending[0])

    def resume(self, strand: Strand, instructions: int) -> None:
        """Run one warp until it blocks, ends, or has executed so many instructions."""
        strand.blocked = None
        if strand.then is not None:
            strand.then()
            strand.then = None
        try:
            for _ in range(instructions):
                instruction = strand.steps.send(strand.result)
                strand.result = self.execute(strand, instruction)
                self.steps += 1
                if strand.blocked is not None and not strand.blocked():
                    return
                strand.blocked = None
        except StopIteration:
            strand.finished = True
            self.open_cluster()

    def execute(self, strand: Strand, instruction: Instruction) -> Any:
        strand.executed += 1
        op = instruction.op(strand.warp.env, strand.warp.rank)
        effects = instruction.primitive.effects(op)
        asynchronous = tuple(e for e in effects if isinstance(e, fx.Async))
        kind = instruction.site.result
        if not asynchronous:
            view = View(self.memory, self.memory.shared, strand.cta)
            array = instruction.primitive.value(op, view)
            for region, data in view.log:
                self.memory.write(region, data)
                if region.buffer.space in ("shared", "global"):
                    strand.unpublished.append(region)
        for effect in effects:
            if not isinstance(effect, fx.Async):
                HANDLERS[type(effect)](self, strand, effect)
        if instruction.primitive.scalar:
            return int(array) if array is not None else 0
        if asynchronous:
            return self.issue(strand, instruction, op, asynchronous)
        if isinstance(kind, FragmentType):
            return FragmentValue(kind, array, instruction, -1, strand.executed)
        return None

    # --- asynchronous operations --------------------------------------------------------------------------

    def issue(self, strand: Strand, instruction: Instruction, op: Op, effects: tuple[fx.Async, ...]) -> Any:
        kind = instruction.site.result
        result = None
        if isinstance(kind, FragmentType):
            result = FragmentValue(kind, _garbage(kind), instruction, 0, -1)
            self.hand_over(strand, op, effects)
        pending = Pending(strand, instruction, op, effects, result)
        self.pending.append(pending)
        for group in dict.fromkeys(e.group for e in effects if e.group is not None):
            strand.open.setdefault(group, []).append(pending)
        if self.policy.eager:
            self.finish(pending)
        return result

    def hand_over(self, strand: Strand, op: Op, effects: tuple[fx.Async, ...]) -> None:
        """Registers written since the last fence may not have reached the tensor cores."""
        for name in (n for e in effects for n in (e.fragment, *e.registers)):
            value = op.args.get(name)
            if self.policy.stale and isinstance(value, FragmentValue) and value.modified > strand.fenced:
                value.array = _garbage(value.type)

    def advance(self, pending: Pending) -> None:
        """One stage: what it reads, or what it writes. Tensor cores keep the order of a warp's operations."""
        pending = self.oldest(pending)
        if pending.deferred is None and self.policy.split and not pending.reduces:
            self.read(pending)
        else:
            self.finish(pending)

    def oldest(self, pending: Pending) -> Pending:
        """The first of the warp's operations of the same kind where the hardware keeps their order."""
        kind = pending.completes
        if kind not in IN_ORDER:
            return pending
        same = (p for p in self.pending if p.agent is pending.agent and p.completes == kind)
        return next(same, pending)

    def read(self, pending: Pending) -> None:
        view = View(self.memory, self.memory.shared, pending.agent.cta)
        if any(e.proxy == "async" for e in pending.effects):
            view.shared, view.arrays = self.published, self.exported
        pending.array = pending.instruction.primitive.value(pending.op, view)
        pending.deferred = view.log

    def finish(self, pending: Pending) -> None:
        if pending.deferred is None:
            self.read(pending)
        generic = pending.effects[0].proxy == "generic"
        for region, data in pending.deferred or ():
            self.memory.write(region, data)
            if not self.policy.stale or region.buffer.space not in ("shared", "global"):
                continue
            if generic:
                self.copied.append(region)
            else:
                self.show(region, data)
        if pending.result is not None:
            pending.result.array = pending.array
        self.pending.remove(pending)
        pending.done = True
        for effect in pending.effects:
            if effect.barrier is not None:
                self.deliver(pending.agent, effect.barrier, effect.bytes)
        self.keep()

    def show(self, region: fx.Region, data: Array | None = None) -> None:
        """Let the async proxy see a window as it is, or `data` in it."""
        view = View(self.memory, self.published, region.cta)
        data = self.memory.read(region) if data is None else data
        view.arrays = self.exported
        view.store(region, data)

    def keep(self) -> None:
        """Make the arrivals that were promised for when operations are done."""
        for promise in [p for p in self.promises if all(owed.done for owed in p.owed)]:
            self.promises.remove(promise)
            for _ in range(promise.arrivals):
                self.arrival(promise.slot, 0)

    def arrival(self, slot: fx.BarrierSlot, expected: int) -> None:
        phase = self.phases[slot]
        phase.transactions += expected
        if phase.pending == 0:
            raise Fault(f"{slot.name}[{slot.index}] gets an arrival beyond its count")
        phase.pending -= 1
        phase.settle()

    def deliver(self, strand: Strand, slot: fx.BarrierSlot, count: int) -> None:
        phase = self.phase(strand, slot)
        if self.policy.stale and not phase.fenced:
            return  # the copy engine does not see the initialized barrier: the completion is lost
        phase.transactions -= count
        phase.settle()

    def slot(self, strand: Strand, slot: fx.BarrierSlot) -> fx.BarrierSlot:
        return slot if slot.cta >= 0 else fx.BarrierSlot(slot.name, slot.index, strand.cta)

    def phase(self, strand: Strand, slot: fx.BarrierSlot) -> Phase:
        found = self.phases.get(self.slot(strand, slot))
        if found is None:
            raise Fault(f"{slot.name}[{slot.index}] is used before it is initialized")
        return found

    def open_cluster(self) -> None:
        if self.cluster and all(s.finished or s.index in self.cluster for s in self.strands):
            self.cluster = set()
            self.cluster_generation += 1


# --- what each effect does --------------------------------------------------------------------------------


def _nothing(run: Execution, strand: Strand, effect: fx.Effect) -> None:
    """Values are read and written by the `value` facet."""


def _inside(run: Execution, strand: Strand, effect: fx.Inside) -> None:
    if not effect.region.inside:
        raise Fault(f"an access outside {effect.region.buffer.name}")


def _commit(run: Execution, strand: Strand, effect: fx.Commit) -> None:
    strand.closed.setdefault(effect.group, []).append(strand.open.pop(effect.group, []))


def _wait_group(run: Execution, strand: Strand, effect: fx.WaitGroup) -> None:
    closed = strand.closed.get(effect.group, [])
    owed = [p for group in closed[: max(0, len(closed) - effect.pending)] for p in group]

    def ready() -> bool:
        return all(p.done or (effect.reads_only and p.deferred is not None) for p in owed)

    strand.blocked = ready


def _init(run: Execution, strand: Strand, effect: fx.InitBarrier) -> None:
    run.phases[run.slot(strand, effect.slot)] = Phase(effect.arrivals, effect.arrivals)


def _arrive(run: Execution, strand: Strand, effect: fx.Arrive) -> None:
    run.phase(strand, effect.slot)
    run.arrival(run.slot(strand, effect.slot), effect.expect_bytes)


def _commit_to(run: Execution, strand: Strand, effect: fx.CommitTo) -> None:
    run.phase(strand, effect.slot)
    owed = [p for p in run.pending if p.agent is strand and p.completes == "tcgen05"]
    run.promises.append(Promise(run.slot(strand, effect.slot), owed))
    run.keep()


def _arrive_copied(run: Execution, strand: Strand, effect: fx.ArriveCopied) -> None:
    phase = run.phase(strand, effect.slot)
    if effect.counted:
        phase.pending += effect.arrivals
    owed = [p for p in run.pending if p.agent is strand and p.completes == "cp_async"]
    run.promises.append(Promise(run.slot(strand, effect.slot), owed, effect.arrivals))
    run.keep()


def _wait(run: Execution, strand: Strand, effect: fx.Wait) -> None:
    phase = run.phase(strand, effect.slot)
    strand.blocked = lambda: (phase.phase & 1) != (effect.parity & 1)


def _fence(run: Execution, strand: Strand, effect: fx.Fence) -> None:
    if effect.kind in ("async_proxy", "async_global"):
        space = "shared" if effect.kind == "async_proxy" else "global"
        own = [region for region in strand.unpublished if region.buffer.space == space]
        copied = [r for r in run.copied if r.cta == strand.cta and space == "shared"]
        if run.policy.stale:
            for region in (*own, *copied):
                run.show(region)
        strand.unpublished = [region for region in strand.unpublished if region.buffer.space != space]
        run.copied = [region for region in run.copied if region not in copied]
    elif effect.kind == "wgmma":
        strand.fenced = strand.executed
    elif effect.kind == "mbarrier_init":
        for slot, phase in run.phases.items():
            phase.fenced = phase.fenced or slot.cta == strand.cta


def _acquire_map(run: Execution, strand: Strand, effect: fx.AcquireMap) -> None:
    if run.policy.stale:
        region = effect.region
        run.show(fx.Region(region.buffer, region.start, region.size, strand.cta))


def _rendezvous(run: Execution, strand: Strand, effect: fx.Rendezvous) -> None:
    gate = run.gates.setdefault((strand.cta, effect.id), Gate())
    generation = gate.generation
    gate.came += 1
    if gate.came >= (effect.warps or run.warps):
        gate.came = 0
        gate.generation += 1
    if effect.blocks:
        strand.blocked = lambda: gate.generation != generation


def _cluster_arrive(run: Execution, strand: Strand, effect: fx.ClusterArrive) -> None:
    if strand.cluster_arrival is not None:
        raise Fault("a warp arrives twice at the barrier of the cluster")
    strand.cluster_arrival = run.cluster_generation
    run.cluster.add(strand.index)
    run.open_cluster()


def _cluster_wait(run: Execution, strand: Strand, effect: fx.ClusterWait) -> None:
    arrival, strand.cluster_arrival = strand.cluster_arrival, None
    if arrival is None:
        raise Fault("a warp waits at the barrier of the cluster without having arrived")
    strand.blocked = lambda: run.cluster_generation != arrival


def _set_registers(run: Execution, strand: Strand, effect: fx.SetRegisters) -> None:
    need = (effect.count - strand.registers) * 32

    def take() -> None:
        run.pools[strand.cta] -= need
        strand.registers = effect.count

    if effect.grow and run.pools[strand.cta] < need:
        strand.blocked = lambda: run.pools[strand.cta] >= need
        strand.then = take
    else:
        take()


HANDLERS: dict[type, Callable[..., None]] = {
    fx.Read: _nothing,
    fx.Write: _nothing,
    fx.Aligned: _nothing,
    fx.Inside: _inside,
    fx.Banked: _nothing,
    fx.Commit: _commit,
    fx.CommitTo: _commit_to,
    fx.ArriveCopied: _arrive_copied,
    fx.Allocate: _nothing,
    fx.Relinquish: _nothing,
    fx.Deallocate: _nothing,
    fx.WaitGroup: _wait_group,
    fx.InitBarrier: _init,
    fx.Arrive: _arrive,
    fx.Wait: _wait,
    fx.Fence: _fence,
    fx.AcquireMap: _acquire_map,
    fx.Rendezvous: _rendezvous,
    fx.ClusterArrive: _cluster_arrive,
    fx.ClusterWait: _cluster_wait,
    fx.SetRegisters: _set_registers,
}
"""What carries an effect out here. Kinds of effects that are added to the machine are added here, too."""


def _garbage(kind: FragmentType) -> Array:
    """Registers that hold nothing yet."""
    buffer = Buffer("", "shared", kind.dtype, kind.layout.warp_shape(kind.shape))
    return poisoned(buffer)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one schedule made of the kernel: `ended` is "done", "deadlock", "runaway" or a fault in words."""

    policy: str
    ended: str
    outputs: Mapping[str, Array]
    written: Mapping[str, Array]


def execute(instance: Instance, inputs: Mapping[str, Array], policy: Policy, blocks: range) -> Outcome:
    """Run the clusters of CTAs `blocks` one after another under a policy. Raises EvaluationError."""
    memory = Memory(instance, inputs)
    program = Program(instance)
    ended = "done"
    size = instance.cluster
    for cluster in dict.fromkeys(block // size for block in policy.order(blocks)):
        memory.fresh()
        ended = Execution(instance, cluster * size, memory, program, policy).run()
        if ended != "done":
            break
    return Outcome(policy.name, ended, {n: memory.arrays[n] for n in memory.written}, memory.written)
