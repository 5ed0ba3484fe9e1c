"""A built kernel put to its task: inputs and oracle made here, the kernel run and timed in the worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cake.codegen.plan import LaunchPlan
from cake.device.arrays import Array
from cake.device.artefact import Artefact
from cake.device.client import DeviceClient
from cake.device.probe import DeviceInfo
from cake.errors import CakeError
from cake.kinds.task import Task
from cake.plugins import Registry


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


@dataclass(frozen=True, slots=True)
class Limit:
    """The seconds that no kernel for the task can beat, and what that was taken from."""

    seconds: float
    source: str
    hard: bool
    """Whether a shorter time is impossible, not only unusual."""


def limit(
    registry: Registry, info: DeviceInfo, task: Task, dims: Mapping[str, int], copy_bandwidth: float
) -> Limit:
    """From the peaks of the calibrated device that this GPU is; else from a copy's speed here, in bytes/s.

    Peaks say what is impossible, a copy only what is usual: the second is a floor for bytes alone.
    """
    from cake.cost import Unknown, floor

    moved = task.bytes(dims)
    for name, device in registry.devices.items():
        if device.arch == info.arch and name.lower() in info.name.lower():
            try:
                found = floor(registry, name, bytes=moved, flops=task.flops(dims))
            except Unknown:
                continue
            return Limit(found.seconds, f"the peaks of {name}", hard=True)
    return Limit(moved / copy_bandwidth, "the task's bytes at the speed of a copy here", hard=False)


def bench(
    client: DeviceClient,
    arms: Sequence[tuple[str, Artefact]],
    task: Task,
    problem: Problem,
    *,
    torch: bool = False,
    rounds: int = 20,
    l2: str = "cold",
    floor: Limit | None = None,
) -> dict[str, Any]:
    """Time the arms on the problem, interleaved, torch last, with rates beside the floor.

    All arms must be built for the same dims. Returns the measurement as JSON, with "flops" and "bytes" of the
    task, "tflops" and "gbps" of each arm, "floor" (a Limit) or None, and the arms "below_floor", which cannot
    have done the work. Raises DeviceFault, MissingEnvironment.
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
    impossible = floor.seconds if floor and floor.hard and l2 == "cold" else 0.0
    said["below_floor"] = [name for name, arm in said["arms"].items() if arm["median"] < impossible]
    return {**said, "flops": flops, "bytes": moved, "floor": asdict(floor) if floor else None}
