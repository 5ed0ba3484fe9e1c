"""Correctness and timing on this host's GPU, through the device worker.

Inputs, oracles and tolerances are made here once for all candidates, in another process than the one that
runs their kernels; of a large output a sample of rows is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cake.codegen import LaunchPlan, compile_source, generate
from cake.device.client import DeviceClient
from cake.device.driver import DeviceFault
from cake.errors import CakeError
from cake.evaluate.evaluator import Target
from cake.evaluate.values import HOSTILE_BLOCKS, Fall, small_instance
from cake.evaluate.verdict import Timing
from cake.ir import Kernel
from cake.ir.arch import canonical
from cake.kinds.device import Device
from cake.kinds.primitive import Primitive
from cake.kinds.task import Array, Task

ROWS = 256
"""Rows of each output that are compared at the target shape; the first and the last are among them."""

ROUNDS = 15
DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Reference:
    """Inputs with the rows of the outputs that they must give, in float64, and the tolerances."""

    inputs: Mapping[str, Array]
    rows: Array
    expected: Mapping[str, Array]
    tolerances: Mapping[str, tuple[float, float]]


class OnDevice:
    """This host's GPU as a judge. Raises MissingEnvironment without one, CakeError for another model."""

    def __init__(self, task: Task, target: Target, device: Device) -> None:
        self._task = task
        self._target = target
        self._client = DeviceClient()
        info = self._client.probe()
        if canonical(info.arch) != canonical(device.arch):
            raise CakeError(
                f"this host's GPU is {info.name} ({info.arch}), the session is for {device.name} "
                f"({device.arch}); choose another --device"
            )
        self._model = info.name
        self._main: Reference | None = None

    def check(self, cubin: bytes, plan: LaunchPlan) -> None:
        """Launch at the target shape on random inputs. Raises Fall or DeviceFault."""
        reference = self._reference()
        self._compare(cubin, plan, reference, "random inputs at the target shape")

    def check_hostile(self, kernel: Kernel, primitives: Mapping[str, Primitive], arch: str) -> None:
        """Launch a small instance, with tails in its tiles, on the hostile inputs. Raises as `check`."""
        instance = small_instance(kernel, primitives, self._target.dims, HOSTILE_BLOCKS, arch)
        if instance is None:
            return
        generated = generate(instance)
        cubin = compile_source(generated.source, instance.arch).cubin
        rng = np.random.default_rng(self._target.seed)
        sets = {"random": self._task.inputs(instance.dims, rng), **self._task.hostile(instance.dims, rng)}
        for name, inputs in sets.items():
            reference = self._made(inputs, instance.dims)
            self._compare(cubin, generated.plan, reference, f"{name} inputs at {instance.title}")

    def time(self, cubin: bytes, plan: LaunchPlan) -> Timing:
        """Seconds a launch, cold L2; the outputs that were timed are compared again. Raises as `check`."""
        reference = self._reference()
        said = self._client.time(
            [("candidate", cubin, plan)],
            reference.inputs,
            expected=reference.expected,
            tolerances=reference.tolerances,
            rows=reference.rows,
            rounds=ROUNDS,
            deadline=DEADLINE_S,
        )
        if said["wrong"]:
            raise Fall("num/wrong-under-load", "the outputs are wrong after many launches in a row")
        arm = said["arms"]["candidate"]
        detail = {
            "samples": arm["samples"],
            "launches": arm["launches"],
            "l2": said["l2"],
            "gpu": self._model,
        }
        return Timing(arm["median"], arm["low"], arm["high"], self._target.device, detail)

    def _compare(self, cubin: bytes, plan: LaunchPlan, reference: Reference, where: str) -> None:
        said = self._client.check(
            cubin,
            plan,
            reference.inputs,
            reference.expected,
            reference.tolerances,
            rows=reference.rows,
            deadline=DEADLINE_S,
        )
        for finding in said["findings"]:
            raise DeviceFault(finding["code"], f"{finding['message']} ({where})")
        for output, found in said["outputs"].items():
            if not found["ok"]:
                raise Fall("num/wrong-values", _words(output, found, where))

    def _reference(self) -> Reference:
        if self._main is None:
            inputs = self._task.inputs(self._target.dims, np.random.default_rng(self._target.seed))
            self._main = self._made(inputs, self._target.dims)
        return self._main

    def _made(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> Reference:
        oracle = self._task.oracle(inputs, dims)
        least = min(len(want) for want in oracle.values())
        rows = np.unique(np.linspace(0, least - 1, min(ROWS, least)).astype(np.int64))
        tolerances = {
            name: (tolerance.absolute, tolerance.relative)
            for name, tolerance in self._task.tolerance(inputs, dims).items()
        }
        return Reference(inputs, rows, {name: want[rows] for name, want in oracle.items()}, tolerances)


def _words(output: str, found: Mapping[str, Any], where: str) -> str:
    count = f"{found['mismatched']} of {found['elements']} compared elements of {output}"
    return f"{count} are wrong on {where}: {found['got']} in place of {found['want']} at {found['where']}"
