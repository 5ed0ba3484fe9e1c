"""What a mutant does, whatever rules say of it: executed beside the kernel it comes from, on small instances.

Two questions. `difference`: in program order, with values: they differ where a run does not end, where the
machine finds a fault on a shape that the check did not choose, where an element is written by one alone, or
where values differ by more than rounding in another order explains. `misbehaviour`: under the schedules that
hardware may take (machine.policies), which know nothing of happens-before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from cake.diagnostics import KernelErrors
from cake.ir import Instance, Kernel, instantiate
from cake.ir.evaluate import EvaluationError
from cake.ir.types import Buffer
from cake.kinds.task import Array, Task
from cake.machine.engine import run
from cake.machine.operational import execute
from cake.machine.policies import Policy, policies
from cake.plugins import Registry
from cake.verify.instances import Choice, choose

SLACK = {1: 2.0**-2, 2: 2.0**-6, 4: 2.0**-12}
"""Per bytes of an element: how far results may differ, relative to their size, if only rounding differs."""


SEEDS = 3
"""Sets of random inputs an instance."""

SCHEDULES, FEW_SCHEDULES, FEW_CLUSTERS = 16, 5, 2
"""Schedules an instance: all extremes and some random ones; the most telling, on the first clusters."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Outputs as they should be, and which of their elements are written."""

    outputs: Mapping[str, Array]
    written: Mapping[str, Array]


@dataclass(slots=True)
class Truth:
    """The behaviour of `kernel`: `difference` tells a mutant's from it. With `task`, its hostile inputs join
    the random ones, and its oracle serves where only the mutant admits a shape. Unless `thorough`, the first
    and largest shape gets one set of inputs, the others all, and few schedules are tried."""

    kernel: Kernel
    registry: Registry
    task: Task | None = None
    thorough: bool = True
    dims: Mapping[str, int] | None = None
    """The one shape to execute, in place of small ones that cover the kernel."""
    known: dict[tuple[str, str], Wanted] = field(default_factory=dict)

    def difference(self, mutant: Kernel) -> str:
        """How the mutant differs, in words; "" where no execution shows a difference."""
        choices = self._choices(self.kernel)
        others = [choice for choice in self._choices(mutant) if choice not in choices]
        for number, choice in enumerate([*choices, *others]):
            if words := self._on(choice, mutant, every=self.thorough or number > 0):
                return words
        return ""

    def misbehaviour(self, mutant: Kernel) -> str:
        """How the mutant goes wrong under some schedule, in words; "" where none that was tried shows it."""
        schedules = SCHEDULES if self.thorough else FEW_SCHEDULES
        for choice in reversed(self._choices(self.kernel)):
            good, bad = self._instance(self.kernel, choice), self._instance(mutant, choice)
            if good is None or bad is None:
                continue
            name, inputs = next(self._inputs(good, every=False))
            wanted = self._wanted(good, name, inputs)
            for policy in policies(bad, schedules):
                if words := _under(policy, bad, inputs, wanted, whole=self.thorough):
                    return f"{bad.title}, schedule {policy.name}: {words}"
        return ""

    def _choices(self, kernel: Kernel) -> list[Choice]:
        return [Choice(self.dims, {})] if self.dims is not None else choose(kernel, {})

    def _on(self, choice: Choice, mutant: Kernel, *, every: bool) -> str:
        good, bad = self._instance(self.kernel, choice), self._instance(mutant, choice)
        if bad is None:
            return "" if good is None else f"{good.title}: refused"
        for name, inputs in self._inputs(good or bad, every):
            wanted = self._wanted(good, name, inputs) if good is not None else self._oracle(bad, inputs)
            if wanted is None:
                continue
            if words := _compared(bad, inputs, wanted):
                return f"{bad.title}, {name} inputs: {words}"
        return ""

    def _instance(self, kernel: Kernel, choice: Choice) -> Instance | None:
        try:
            return instantiate(kernel, choice.dims, choice.constants, primitives=self.registry.primitives)
        except KernelErrors:
            return None

    def _inputs(self, instance: Instance, every: bool) -> Iterator[tuple[str, dict[str, Array]]]:
        buffers = [b for b in instance.buffers.values() if b.space == "global" and not b.output]
        names = {b.name for b in buffers}
        for seed in range(SEEDS if every else 1):
            rng = np.random.default_rng(seed)
            yield f"random {seed}", {b.name: _random(b, rng, seed) for b in buffers}
        if self.task is not None and every:
            rng = np.random.default_rng(0)
            for name, inputs in self.task.hostile(instance.dims, rng).items():
                if names <= set(inputs):
                    yield name, inputs

    def _wanted(self, good: Instance, name: str, inputs: Mapping[str, Array]) -> Wanted:
        key = (good.title, name)
        if key not in self.known:
            result = run(good, inputs=inputs)
            self.known[key] = Wanted(result.outputs, result.written)
        return self.known[key]

    def _oracle(self, bad: Instance, inputs: Mapping[str, Array]) -> Wanted | None:
        """The task's results, where the kernel itself does not admit the shape."""
        if self.task is None:
            return None
        wanted = {
            name: np.asarray(value).astype(bad.buffers[name].dtype.numpy)
            for name, value in self.task.oracle(inputs, bad.dims).items()
        }
        written = {name: np.ones(value.shape, bool) for name, value in wanted.items()}
        return Wanted(wanted, written)


def task_of(registry: Registry, kernel: Kernel) -> Task | None:
    """The task that the kernel is named after and whose tensors it takes."""
    tensors = {p.name: (p.dtype, p.output) for p in kernel.params}
    for task in registry.tasks.values():
        theirs = {name: (tensor.dtype, tensor.output) for name, tensor in task.tensors.items()}
        if kernel.name.startswith(task.name()) and theirs == tensors:
            return task
    return None


def _random(buffer: Buffer, rng: np.random.Generator, seed: int) -> Array:
    """Normal numbers; negative ones; some of very different sizes: a wrong identity shows on one of them."""
    if not buffer.dtype.is_float:
        return rng.integers(-100, 100, buffer.shape).astype(buffer.dtype.numpy)
    values = rng.standard_normal(buffer.shape)
    if seed % 3 == 1:
        values = -np.abs(values) - 1.0
    elif seed % 3 == 2:
        values = values * np.exp2(rng.integers(-3, 4, buffer.shape))
    return values.astype(buffer.dtype.numpy)


def _compared(bad: Instance, inputs: Mapping[str, Array], wanted: Wanted) -> str:
    try:
        got = run(bad, inputs=inputs)
    except EvaluationError as error:
        return error.message
    if got.facts.findings:
        return f"the machine finds {type(got.facts.findings[0]).__name__}"
    return _unlike(got.outputs, got.written, wanted)


def _under(policy: Policy, bad: Instance, inputs: Mapping[str, Array], wanted: Wanted, *, whole: bool) -> str:
    """Under one schedule, every CTA, or the first few and what these write."""
    count = bad.blocks if whole else min(bad.blocks, FEW_CLUSTERS * bad.cluster)
    try:
        outcome = execute(bad, inputs, policy, range(count))
    except EvaluationError as error:
        return error.message
    if outcome.ended != "done":
        return outcome.ended
    if count < bad.blocks:
        mine = outcome.written
        outputs = {name: np.where(mine[name], array, 0) for name, array in outcome.outputs.items()}
        want = {name: np.where(mine[name], array, 0) for name, array in wanted.outputs.items()}
        return _unlike(outputs, mine, Wanted(want, mine))
    return _unlike(outcome.outputs, outcome.written, wanted)


def _unlike(outputs: Mapping[str, Array], written: Mapping[str, Array], wanted: Wanted) -> str:
    for name, want in wanted.outputs.items():
        if not np.array_equal(written[name], wanted.written[name]):
            count = int(np.count_nonzero(written[name] != wanted.written[name]))
            return f"{count} elements of {name} are written by one alone"
        if (place := _first_difference(outputs[name], want)) is not None:
            return f"{name}{list(place)} is {outputs[name][place]} in place of {want[place]}"
    return ""


def _first_difference(got: Array, want: Array) -> tuple[int, ...] | None:
    """Where the two differ by more than the order of operations explains."""
    slack = SLACK[want.dtype.itemsize]
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0)) / 16
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        near = finite & (np.abs(a - b) <= slack * (np.abs(b) + scale))
    wrong = ~(same | near)
    if not wrong.any():
        return None
    return tuple(int(i) for i in np.argwhere(wrong)[0])
