"""Many compiles at once, each in a child process with a deadline that kills.

    in   {"source", "arch", "path", "cache"}
    out  {"compiled": {...}} or {"refused": [[code, message, line, column, end], ...]} or {"missing": words}

`python -m cake.codegen.parallel` is the child.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

from cake.child import Child, ChildDied
from cake.codegen.compile import Compiled, compile_source
from cake.diagnostics import NOWHERE, Diagnostic, KernelErrors, Label, Source, Span
from cake.errors import MissingEnvironment

DEADLINE_S = 60.0
_COMMAND = (sys.executable, "-m", "cake.codegen.parallel")


@dataclass(frozen=True, slots=True)
class Job:
    """One text to compile, as `compile_source` takes it."""

    source: str
    arch: str
    path: str = ""


def compile_many(
    jobs: Sequence[Job],
    processes: int | None = None,
    *,
    deadline: float = DEADLINE_S,
    cache_dir: Path | None = None,
    command: Sequence[str] = _COMMAND,
) -> list[Compiled | KernelErrors]:
    """Compile all jobs in up to `processes` children (one a core), `deadline` seconds each.

    Results stand in the order of the jobs. A refused text is its KernelErrors, not raised, and so is one that
    takes too long (`compile/deadline`) or takes the compiler down (`compile/crashed`): these cost a child,
    and the rest goes on. Raises MissingEnvironment where NVRTC is missing.
    """
    if not jobs:
        return []
    count = max(1, min(len(jobs), processes or os.cpu_count() or 1))
    idle: SimpleQueue[_Seat] = SimpleQueue()
    seats = [_Seat(command) for _ in range(count)]
    for seat in seats:
        idle.put(seat)

    def one(job: Job) -> Compiled | KernelErrors:
        seat = idle.get()
        try:
            return seat.compile(job, deadline, cache_dir)
        finally:
            idle.put(seat)

    try:
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(one, jobs))
    finally:
        for seat in seats:
            seat.close()


class _Seat:
    """One child, replaced after it had to be killed."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._child: Child | None = None

    def compile(self, job: Job, deadline: float, cache_dir: Path | None) -> Compiled | KernelErrors:
        if self._child is None:
            self._child = Child(self._command)
        order = {**asdict(job), "cache": str(cache_dir) if cache_dir else ""}
        try:
            return _result(job, self._child.ask(order, deadline))
        except TimeoutError:
            self.close()
            return _refusal(job, "compile/deadline", f"not compiled for {job.arch} within {deadline:g} s")
        except ChildDied as end:
            self.close()
            return _refusal(job, "compile/crashed", f"the compiler died: {end}")

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


def _result(job: Job, answer: Mapping[str, Any]) -> Compiled | KernelErrors:
    if "missing" in answer:
        raise MissingEnvironment(answer["missing"])
    if "refused" in answer:
        found = [
            Diagnostic(code, message, Label(Span(line, column, line, end)))
            for code, message, line, column, end in answer["refused"]
        ]
        return KernelErrors(found, Source(job.path or "kernel.cu", answer["text"]))
    fields = dict(answer["compiled"])
    cubin = base64.b64decode(fields.pop("cubin"))
    return Compiled(cubin=cubin, notes=tuple(fields.pop("notes")), **fields)


def _refusal(job: Job, code: str, message: str) -> KernelErrors:
    return KernelErrors([Diagnostic(code, message, Label(NOWHERE))], Source(job.path or "kernel.cu", ""))


def serve(orders: TextIO, answers: TextIO) -> None:
    """The child: compile what each line asks for."""
    for answer in map(_answer, _orders(orders)):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _orders(lines: TextIO) -> Iterator[dict[str, Any]]:
    for line in lines:
        yield json.loads(line)


def _answer(order: Mapping[str, Any]) -> dict[str, Any]:
    cache_dir = Path(order["cache"]) if order["cache"] else None
    try:
        compiled = compile_source(order["source"], order["arch"], cache_dir=cache_dir, path=order["path"])
    except KernelErrors as refusal:
        spans = [(d.code, d.message, d.primary.span) for d in refusal.diagnostics]
        rows = [[code, message, s.line, s.column, s.end_column] for code, message, s in spans]
        return {"refused": rows, "text": refusal.source.text}
    except MissingEnvironment as missing:
        return {"missing": str(missing)}
    return {"compiled": {**asdict(compiled), "cubin": base64.b64encode(compiled.cubin).decode()}}


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as said:
        os.dup2(2, 1)  # what the compiler prints is no answer
        serve(sys.stdin, said)
