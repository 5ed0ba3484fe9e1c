"""The parent's side of the worker: orders with a deadline that kills, faults as data.

A kernel may hang, crash the driver or write anywhere; it does so in the worker, whose death is a DeviceFault
like any other. Oracles are computed here, in another process than the one the kernel ran in.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from cake.codegen.plan import LaunchPlan
from cake.device.arrays import Array, load, save
from cake.device.driver import DeviceFault
from cake.device.probe import DeviceInfo
from cake.errors import CakeError, ExitCode

DEADLINE_S = 120.0
_COMMAND = (sys.executable, "-m", "cake.device.worker")
_LAST_WORDS = 2000


class DeviceClient:
    """Runs kernels in a worker process on GPU `index`. A context manager.

    Every method raises MissingEnvironment without a GPU, DeviceFault where the kernel cannot be launched,
    crashes the worker (`device/crashed`) or passes its deadline (`device/deadline`), and CakeError for
    orders that do not fit the plan. The worker starts with the first order and again after it died.
    """

    def __init__(self, index: int = 0, *, command: Sequence[str] = _COMMAND) -> None:
        self._index = index
        self._command = tuple(command)
        self._worker: _Child | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="cake-device-")
        self._files = 0

    def __enter__(self) -> DeviceClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker and remove the files that travelled."""
        self._end()
        self._folder.cleanup()

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
        with tempfile.TemporaryDirectory(dir=self._folder.name) as outputs:
            order = {"job": "run", **self._kernel(cubin, plan), **self._inputs(inputs), "outputs": outputs}
            result = self.ask(order, deadline)
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
        wanted = self._expected(expected, tolerances, rows)
        order = {"job": "check", **self._kernel(cubin, plan), **self._inputs(inputs), **wanted}
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
        listed: list[dict[str, Any]] = [
            {"name": name, **self._kernel(cubin, plan)} for name, cubin, plan in arms
        ]
        if torch_task is not None:
            listed.append({"name": "torch", "task": torch_task})
        order = {"job": "time", "arms": listed, "rounds": rounds, "l2": l2, **self._inputs(inputs)}
        if expected is not None:
            order |= self._expected(expected, tolerances or {}, rows)
        return self.ask(order, deadline)

    def ask(self, order: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """Send one order and wait for its result."""
        if self._worker is None:
            self._worker = _Child(self._command, {**os.environ, "CAKE_GPU": str(self._index)})
        worker = self._worker
        try:
            answer = worker.ask(order, deadline)
        except TimeoutError:
            self._end()
            raise DeviceFault("device/deadline", f"not done within {deadline:g} s: killed") from None
        except (BrokenPipeError, EOFError, ValueError):
            words = worker.last_words()
            self._end()
            raise DeviceFault("device/crashed", f"the process that ran the kernel died: {words}") from None
        if "result" in answer:
            result: dict[str, Any] = answer["result"]
            return result
        raise self._refused(answer["error"])

    def _refused(self, error: Mapping[str, Any]) -> CakeError:
        """The worker's error as the exception it was there. A worker that lost its context has ended."""
        exit_code = ExitCode(error["exit_code"])
        if exit_code is ExitCode.REFUSED:
            self._end()
            return DeviceFault(error["code"], error["message"])
        refusal = CakeError(error["message"])
        refusal.exit_code = exit_code
        return refusal

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _path(self, suffix: str) -> Path:
        self._files += 1
        return Path(self._folder.name) / f"{self._files}{suffix}"

    def _kernel(self, cubin: bytes, plan: LaunchPlan) -> dict[str, Any]:
        path = self._path(".cubin")
        path.write_bytes(cubin)
        return {"cubin": str(path), "plan": plan.to_json()}

    def _inputs(self, inputs: Mapping[str, Array]) -> dict[str, Any]:
        paths = {}
        for name, array in inputs.items():
            path = self._path(".npy")
            save(path, array)
            paths[name] = str(path)
        return {"inputs": paths}

    def _expected(
        self,
        expected: Mapping[str, Array],
        tolerances: Mapping[str, tuple[float, float]],
        rows: Array | None,
    ) -> dict[str, Any]:
        order: dict[str, Any] = {"expected": {}, "tolerances": {n: list(t) for n, t in tolerances.items()}}
        for name, array in expected.items():
            path = self._path(".npy")
            np.save(path, array.astype(np.float64), allow_pickle=False)
            order["expected"][name] = str(path)
        if rows is not None:
            order["rows"] = str(self._path(".npy"))
            np.save(order["rows"], rows, allow_pickle=False)
        return order


class _Child:
    """A process that answers JSON lines; its standard error goes to a file without a name."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed by `kill`
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=dict(environment),
            start_new_session=True,  # killing takes along what it started
        )
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._buffer = b""

    def ask(self, order: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """One line out, one line in. Raises TimeoutError, EOFError when it ends, BrokenPipeError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                raise TimeoutError
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                raise EOFError
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def last_words(self) -> str:
        """How it ended, and the last line it wrote to standard error."""
        try:
            status = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return "it closed its pipe and goes on"
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _LAST_WORDS))
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"{how}: {said[-1]}" if said else how

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(BrokenPipeError):
                if file is not None:
                    file.close()
