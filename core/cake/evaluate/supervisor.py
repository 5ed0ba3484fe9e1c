"""Keeps one worker process and gives each candidate a deadline that kills.

Whatever a candidate does to the worker (hang, crash, eat memory) is its verdict; the next candidate gets a
fresh worker. A worker that cannot even start is the workspace's or the machine's fault, and raises.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from cake.child import Child
from cake.errors import BrokenPlugin, CakeError, ExitCode
from cake.evaluate.evaluator import Backend, Target
from cake.evaluate.verdict import Stage, Step, Verdict

DEADLINES_S: dict[Backend, float] = {"machine": 30.0, "cuda": 300.0}
"""A candidate is judged in about a second; these are for the pathological ones. The device worker has
deadlines of its own, which must come first."""

_START_S = 120.0


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
        self._worker: Child | None = None
        self._is_ready = False
        self._start()

    def ready(self) -> None:
        """Wait until the worker can judge. Raises CakeError (of its kind) where it says that it cannot."""
        worker = self._start()
        if self._is_ready:
            return
        try:
            for answer in worker.answers(_START_S):
                if "error" in answer:
                    raise _as_error(answer)
                self._is_ready = True
                return
            said = worker.last_words()
        except TimeoutError:
            said = f"it did not start within {_START_S:g} s"
        self.close()
        raise BrokenPlugin(f"the process that judges candidates cannot start: {said}")

    def evaluate(self, text: str, beat: float | None) -> Verdict:
        """Judge one candidate within the deadline; hanging and crashing are verdicts.

        Raises CakeError where GPU, compiler or disk are gone: nothing is said of the candidate then.
        """
        self.ready()
        worker = self._start()
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
            self._is_ready = False

    def _start(self) -> Child:
        """The running worker; a new one gets its order at once and makes itself ready meanwhile."""
        if self._worker is None:
            self._worker = Child(self._command)
            with suppress(BrokenPipeError):  # a worker that cannot start says why when it is waited for
                self._worker.send(
                    {
                        "root": str(self._root),
                        "target": self._target.as_json(),
                        "deadline": self._deadline,
                    }
                )
        return self._worker


def _as_error(answer: dict[str, Any]) -> CakeError:
    """The worker's refusal as the exception it was there."""
    error = CakeError(answer["error"])
    error.exit_code = ExitCode(answer["exit_code"])
    return error
