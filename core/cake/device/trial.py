"""A built kernel put to its task: inputs and oracle made here, the kernel run and timed in the worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cake.codegen.plan import LaunchPlan
from cake.device.arrays import Array
from cake.device.artefact import Artefact
from cake.device.client import DeviceClient
from cake.errors import CakeError
from cake.kinds.task import Task


@dataclass(frozen=True, slots=True)
class Problem:
    """Inputs with the outputs that they must give in float64, and (absolute, relative) by output."""

    name: str
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    tolerances: Mapping[str, tuple[float, float]]


def pose(task: Task, dims: Mapping[str, int], seed: int = 0) -> Problem:
    """Fresh random inputs and their oracle."""
    return _posed("random", task, task.inputs(dims, np.random.default_rng(seed)), dims)


def pose_hostile(task: Task, dims: Mapping[str, int], seed: int = 0) -> list[Problem]:
    """The inputs that the task means to break kernels with."""
    hostile = task.hostile(dims, np.random.default_rng(seed))
    return [_posed(name, task, inputs, dims) for name, inputs in hostile.items()]


def _posed(name: str, task: Task, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> Problem:
    tolerances = {n: (t.absolute, t.relative) for n, t in task.tolerance(inputs, dims).items()}
    return Problem(name, inputs, task.oracle(inputs, dims), tolerances)


def task_of(tasks: Mapping[str, Task], plan: LaunchPlan, dims: Mapping[str, int]) -> Task:
    """The task whose tensors are exactly the kernel's. Raises CakeError where there is none, or several."""
    found = [task for task in tasks.values() if serves(task, plan, dims)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(task.name() for task in found)
        raise CakeError(f"the kernel's tensors fit several tasks ({names}): choose one with --task")
    tensors = ", ".join(f"{n}: {t.dtype}{list(t.shape)}" for n, t in plan.tensors.items())
    known = ", ".join(tasks) or "none"
    raise CakeError(f"no task has the kernel's tensors ({tensors}); tasks known: {known}")


def serves(task: Task, plan: LaunchPlan, dims: Mapping[str, int]) -> bool:
    """Whether the kernel takes and gives the task's tensors at these dims."""
    axes = {axis for tensor in task.tensors.values() for axis in tensor.shape}
    if not axes <= set(dims):
        return False
    wanted = {
        name: (t.dtype, tuple(dims[axis] for axis in t.shape), "out" if t.output else "in")
        for name, t in task.tensors.items()
    }
    return wanted == {name: (t.dtype, t.shape, t.access) for name, t in plan.tensors.items()}


def check(client: DeviceClient, artefact: Artefact, problem: Problem, repeats: int = 2) -> dict[str, Any]:
    """Launch on the problem and compare: {"inputs", "ok", "outputs", "findings", "repeats"}.

    Raises DeviceFault, MissingEnvironment.
    """
    said = client.check(
        artefact.cubin, artefact.plan, problem.inputs, problem.expected, problem.tolerances, repeats=repeats
    )
    return {"inputs": problem.name, **said}


def bench(
    client: DeviceClient,
    arms: Sequence[tuple[str, Artefact]],
    task: Task,
    problem: Problem,
    *,
    torch: bool = False,
    rounds: int = 20,
    l2: str = "cold",
    bandwidth: float = 0.0,
) -> dict[str, Any]:
    """Time the arms on the problem, interleaved, torch last, with rates and the floor.

    `bandwidth`: bytes a second that the device can move; with it comes "floor_seconds", the time that the
    task's bytes alone take. All arms must be built for the same dims. Returns the measurement as JSON.
    Raises DeviceFault, MissingEnvironment.
    """
    dims = arms[0][1].dims
    said = client.time(
        [(name, artefact.cubin, artefact.plan) for name, artefact in arms],
        problem.inputs,
        torch_task=task.name() if torch else None,
        expected=problem.expected,
        tolerances=problem.tolerances,
        rounds=rounds,
        l2=l2,
    )
    flops, moved = task.flops(dims), task.bytes(dims)
    for arm in said["arms"].values():
        arm["tflops"] = flops / arm["median"] / 1e12
        arm["gbps"] = moved / arm["median"] / 1e9
    said |= {"flops": flops, "bytes": moved, "floor_seconds": moved / bandwidth if bandwidth else None}
    return said
