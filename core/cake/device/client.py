"""The parent's side of the worker: orders with a deadline that kills, faults as data.

A kernel may hang, crash the driver or write anywhere; it does so in the worker, whose death is a DeviceFault
like any other. Oracles are computed here, in another process than the one the kernel ran in.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cake.child import Child, ChildDied
from cake.codegen.plan import LaunchPlan
from cake.device.arrays import Array, load, save
from cake.device.driver import DeviceFault
from cake.device.probe import DeviceInfo
from cake.errors import CakeError, ExitCode, MissingEnvironment

DEADLINE_S = 120.0
_COMMAND = (sys.executable, "-m", "cake.device.worker")


class DeviceClient:
    """Runs kernels in a worker process on GPU `index`. A context manager.

    Every method raises MissingEnvironment without a GPU, DeviceFault where the kernel cannot be launched,
    crashes the worker (`device/crashed`) or passes its deadline (`device/deadline`), and CakeError for
    orders that do not fit the plan. The worker starts with the first order and again after it died.
    """

    def __init__(self, index: int = 0, *, command: Sequence[str] = _COMMAND) -> None:
        self._index = index
        self._command = tuple(command)
        self._worker: Child | None = None

    def __enter__(self) -> DeviceClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def probe(self, deadline: float = DEADLINE_S) -> DeviceInfo:
        """What GPU is here."""
        return DeviceInfo(**self.ask({"job": "probe"}, deadline))

    def copy_bandwidth(self, deadline: float = DEADLINE_S) -> float:
        """Bytes a second, read and written, of a large copy in device memory."""
        return float(self.ask({"job": "copy_bandwidth"}, deadline)["bytes_per_second"])

    def run(
        self, cubin: bytes, plan: LaunchPlan, inputs: Mapping[str, Array], deadline: float = DEADLINE_S
    ) -> tuple[dict[str, Array], list[dict[str, str]]]:
        """Launch once: outputs by name in the plan's dtypes, and findings {"code", "tensor", "message"}."""
        with _Parcel() as parcel:
            order = {"job": "run", **parcel.kernel(cubin, plan), "inputs": parcel.arrays(inputs)}
            result = self.ask({**order, "outputs": str(parcel.folder)}, deadline)
            arrays = {n: load(Path(p), plan.tensors[n].dtype) for n, p in result["outputs"].items()}
            return arrays, result["findings"]

    def check(
        self,
        cubin: bytes,
        plan: LaunchPlan,
        inputs: Mapping[str, Array],
        expected: Mapping[str, Array],
        tolerances: Mapping[str, tuple[float, float]],
        *,
        rows: Array | None = None,
        repeats: int = 2,
        deadline: float = DEADLINE_S,
    ) -> dict[str, Any]:
        """Launch and compare with the oracle.

        `expected`: float64 by output; with `rows`, only those rows (first axis). `tolerances`: (absolute,
        relative) by output. `repeats` launches must agree bit for bit.
        Returns {"ok", "outputs": {name: compare.Comparison as JSON}, "findings", "repeats"}.
        """
        with _Parcel() as parcel:
            order = {"job": "check", **parcel.kernel(cubin, plan), "inputs": parcel.arrays(inputs)}
            order |= parcel.expected(expected, tolerances, rows)
            return self.ask({**order, "repeats": repeats}, deadline)

    def time(
        self,
        arms: Sequence[tuple[str, bytes, LaunchPlan]],
        inputs: Mapping[str, Array],
        *,
        torch_task: str | None = None,
        expected: Mapping[str, Array] | None = None,
        tolerances: Mapping[str, tuple[float, float]] | None = None,
        rows: Array | None = None,
        rounds: int = 20,
        l2: str = "cold",
        deadline: float = DEADLINE_S,
    ) -> dict[str, Any]:
        """Time kernels (name, cubin, plan) on the same inputs, interleaved; torch as a last arm if asked.

        Returns `timing.Measurement` as JSON with "device", "checked" and "wrong": the outputs after timing
        are compared where `expected` is given.
        """
        with _Parcel() as parcel:
            listed: list[dict[str, Any]] = [
                {"name": name, **parcel.kernel(cubin, plan)} for name, cubin, plan in arms
            ]
            if torch_task is not None:
                listed.append({"name": "torch", "task": torch_task})
            order = {"job": "time", "arms": listed, "rounds": rounds, "l2": l2}
            order["inputs"] = parcel.arrays(inputs)
            if expected is not None:
                order |= parcel.expected(expected, tolerances or {}, rows)
            return self.ask(order, deadline)

    def ask(self, order: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """Send one order and wait for its result."""
        if self._worker is None:
            self._worker = Child(self._command, {"CAKE_GPU": str(self._index)})
        try:
            answer = self._worker.ask(order, deadline)
        except TimeoutError:
            self.close()
            raise DeviceFault("device/deadline", f"not done within {deadline:g} s: killed") from None
        except ChildDied as end:
            self.close()
            raise DeviceFault("device/crashed", f"the process that ran the kernel died: {end}") from None
        if "result" in answer:
            result: dict[str, Any] = answer["result"]
            return result
        raise self._refused(answer["error"])

    def _refused(self, error: Mapping[str, Any]) -> CakeError:
        """The worker's error as the exception it was there; a worker that lost its context is replaced."""
        if error["ends"]:
            self.close()
        match ExitCode(error["exit_code"]):
            case ExitCode.REFUSED:
                return DeviceFault(error["code"], error["message"], sticky=error["ends"])
            case ExitCode.ENVIRONMENT:
                return MissingEnvironment(error["message"])
            case _:
                return CakeError(error["message"])


class _Parcel:
    """The files of one order, in a folder that goes when the order is done."""

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="cake-device-")
        self.folder = Path(self._temporary.name)
        self._files = 0

    def __enter__(self) -> _Parcel:
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def kernel(self, cubin: bytes, plan: LaunchPlan) -> dict[str, Any]:
        path = self._path(".cubin")
        path.write_bytes(cubin)
        return {"cubin": str(path), "plan": plan.to_json()}

    def arrays(self, arrays: Mapping[str, Array]) -> dict[str, str]:
        paths = {}
        for name, array in arrays.items():
            path = self._path(".npy")
            save(path, array)
            paths[name] = str(path)
        return paths

    def expected(
        self,
        expected: Mapping[str, Array],
        tolerances: Mapping[str, tuple[float, float]],
        rows: Array | None,
    ) -> dict[str, Any]:
        order: dict[str, Any] = {
            "expected": self.arrays({name: array.astype(np.float64) for name, array in expected.items()}),
            "tolerances": {name: list(pair) for name, pair in tolerances.items()},
        }
        if rows is not None:
            order["rows"] = self.arrays({"rows": rows})["rows"]
        return order

    def _path(self, suffix: str) -> Path:
        self._files += 1
        return self.folder / f"{self._files}{suffix}"
