"""Keeps one worker process and gives each candidate a deadline that kills.

Whatever a candidate does to the worker (hang, crash, eat memory) is its verdict; the next candidate gets a
fresh worker. A worker that cannot even start is the workspace's or the machine's fault, and raises.
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
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from cake.errors import BrokenPlugin, CakeError, ExitCode
from cake.evaluate.evaluator import Backend, Target
from cake.evaluate.verdict import Stage, Step, Verdict

DEADLINES_S: dict[Backend, float] = {"machine": 30.0, "cuda": 300.0}
"""A candidate is judged in about a second; these are for the pathological ones. The device worker has
deadlines of its own, which must come first."""

_START_S, _END_S = 120.0, 5.0
_TAIL = 2000


class Supervisor:
    """The evaluator of real sessions. Starts its worker at once; `ready` waits for it."""

    def __init__(
        self,
        root: Path,
        target: Target,
        deadline: float | None = None,
        command: tuple[str, ...] = (sys.executable, "-m", "cake.evaluate.worker"),
    ) -> None:
        self._root = root
        self._target = target
        self._deadline = DEADLINES_S[target.backend] if deadline is None else deadline
        self._command = command
        self._worker: _Worker | None = self._start()

    def ready(self) -> None:
        """Wait until the worker can judge. Raises CakeError (of its kind) where it says that it cannot."""
        if self._worker is None:
            self._worker = self._start()
        self._worker.wait_ready()

    def evaluate(self, text: str, beat: float | None) -> Verdict:
        """Judge one candidate within the deadline; hanging and crashing are verdicts.

        Raises CakeError where GPU, compiler or disk are gone: nothing is said of the candidate then.
        """
        self.ready()
        worker = self._worker
        assert worker is not None
        began = time.monotonic()
        stage: Stage = "parse"
        try:
            worker.send({"text": text, "beat": beat})
            for answer in worker.answers(self._deadline):
                if "verdict" in answer:
                    return Verdict.from_json(answer["verdict"])
                if "error" in answer:
                    raise _as_error(answer)
                stage = answer["entering"]
            code, message = "ladder/crashed", f"the judge died while judging: {worker.last_words()}"
        except TimeoutError:
            code, message = "ladder/deadline", f"not judged within {self._deadline:g} s"
        except BrokenPipeError:
            code, message = "ladder/crashed", f"the judge died while judging: {worker.last_words()}"
        self.close()
        steps = (Step(stage, time.monotonic() - began),)
        return Verdict(False, stage, steps, code, message)

    def close(self) -> None:
        """Kill the worker and all that it started."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _start(self) -> _Worker:
        order = {"root": str(self._root), "target": self._target.as_json(), "deadline": self._deadline}
        return _Worker(self._command, order)


class _Worker:
    """A worker process with its pipes; standard error goes to a file without a name."""

    def __init__(self, command: tuple[str, ...], order: dict[str, Any]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed by `kill`
        self._ready = False
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # A group of its own: Ctrl-C is for the session, and killing it takes what it started along.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._buffer = b""
        self.send(order)

    def wait_ready(self) -> None:
        if self._ready:
            return
        try:
            for answer in self.answers(_START_S):
                if "error" in answer:
                    raise _as_error(answer)
                self._ready = True
                return
            said = self.last_words()
        except TimeoutError:
            said = f"it did not start within {_START_S:g} s"
        self.kill()
        raise BrokenPlugin(f"the process that judges candidates cannot start: {said}")

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def answers(self, seconds: float) -> Iterator[dict[str, Any]]:
        """What the worker says, until it ends. Raises TimeoutError after `seconds`."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                yield json.loads(line)
                continue
            left = deadline - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                raise TimeoutError
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                return
            self._buffer += read

    def last_words(self) -> str:
        """How the process ended, and the end of what it wrote to standard error."""
        try:
            status = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "it closed its pipe and goes on"
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _TAIL))
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"{how}: {said[-1]}" if said else how

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(BrokenPipeError):  # what was not yet written to a dead worker
                if file is not None:
                    file.close()


def _as_error(answer: dict[str, Any]) -> CakeError:
    """The worker's refusal as the exception it was there."""
    error = CakeError(answer["error"])
    error.exit_code = ExitCode(answer["exit_code"])
    return error
