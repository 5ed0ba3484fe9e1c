"""The ladder: parse, types, rules, machine, time, compile, correctness, timing. Runs in the worker process.

Cheapest first; a candidate stops at its first failure. Each stage is announced before it begins and timed.
Whatever happens is a verdict: a fault of cake or of a plugin on one candidate is `ladder/internal`.
"""

from __future__ import annotations

import hashlib
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cake.diagnostics import Diagnostic, KernelErrors, Source, as_json
from cake.evaluate.evaluator import Target
from cake.evaluate.verdict import Stage, Step, Timing, Verdict
from cake.ir import Instance, Kernel, content_hash, instantiate, parse

if TYPE_CHECKING:
    from cake.plugins import Registry

SHOWN_AS = "candidate.cake"
"""The path that diagnostics name: a candidate lies in the record, not in a file."""


def fingerprint(text: str) -> str:
    """The content hash of a kernel text; of its bytes where it does not parse."""
    try:
        return content_hash(parse(text))
    except KernelErrors:
        return hashlib.sha256(b"text\0" + text.encode()).hexdigest()


class Fall(Exception):
    """A candidate fails for a reason that is no diagnostic of the compiler."""

    def __init__(self, code: str, message: str, line: int = 0) -> None:
        self.code, self.message, self.line = code, message, line
        super().__init__(message)


@dataclass(slots=True)
class Climb:
    """How far one candidate has come."""

    entering: Callable[[Stage], None]
    stage: Stage = "parse"
    steps: list[Step] = field(default_factory=list)
    symptoms: tuple[str, ...] = ()
    predicted: Timing | None = None
    resources: dict[str, Any] | None = None
    measured: Timing | None = None

    @contextmanager
    def on(self, stage: Stage) -> Iterator[None]:
        """Announce a stage and time what it does, whether it succeeds or not."""
        self.stage = stage
        self.entering(stage)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.steps.append(Step(stage, time.perf_counter() - began))

    def end(self, **failure: Any) -> Verdict:
        """The verdict: passed where no failure is given."""
        return Verdict(
            ok=not failure,
            stage=self.stage,
            steps=tuple(self.steps),
            symptoms=self.symptoms,
            predicted=self.predicted,
            resources=self.resources,
            measured=self.measured,
            **failure,
        )


class Ladder:
    """Judges texts for one target. Raises CakeError at once where the target's plugins or GPU are missing."""

    def __init__(self, registry: Registry, target: Target) -> None:
        self.registry = registry
        self.target = target
        self.task = registry.get("task", target.task)
        self.device = registry.get("device", target.device)

    def climb(self, text: str, beat: float | None, entering: Callable[[Stage], None]) -> Verdict:
        """Climb until the first failure or the backend's last stage; never raises for any text."""
        climb = Climb(entering)
        try:
            self._stages(text, beat, climb)
        except KernelErrors as refusal:
            return self._refused(climb, refusal.diagnostics, refusal.source)
        except Fall as fall:
            return climb.end(code=fall.code, message=fall.message, line=fall.line)
        except Exception as error:  # cake's own fault on this candidate: the session goes on, and says so
            where = traceback.extract_tb(error.__traceback__)[-1]
            words = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno} of {where.filename})"
            return climb.end(code="ladder/internal", message=words)
        return climb.end()

    def _stages(self, text: str, beat: float | None, climb: Climb) -> None:
        with climb.on("parse"):
            kernel = parse(text, SHOWN_AS)
        with climb.on("types"):
            instance = instantiate(kernel, self.target.dims, primitives=self.registry.primitives)
            self._check_interface(instance)

    def _check_interface(self, instance: Instance) -> None:
        """The kernel takes and gives exactly the task's tensors."""
        found = {b.name: b for b in instance.buffers.values() if b.space == "global"}
        for name, tensor in self.task.tensors.items():
            buffer = found.pop(name, None)
            shape = tuple(self.target.dims[axis] for axis in tensor.shape)
            wanted = (tensor.dtype, shape, tensor.output)
            if buffer is None or (buffer.dtype.value, buffer.shape, buffer.output) != wanted:
                way = "GlobalOut" if tensor.output else "Global"
                axes = ", ".join([tensor.dtype, *tensor.shape])
                raise Fall("type/interface", f"task {self.task.name()} needs {name}: {way}[{axes}]", 2)
        if found:
            raise Fall("type/interface", f"task {self.task.name()} has no tensor {next(iter(found))}", 2)

    def _refused(self, climb: Climb, diagnostics: Sequence[Diagnostic], source: Source) -> Verdict:
        first = next((d for d in diagnostics if d.severity == "error"), diagnostics[0])
        line = first.primary.span.line
        return climb.end(
            code=first.code,
            message=first.message,
            line=line,
            primitive=self._primitive(source, line),
            diagnostics=tuple(as_json(diagnostics, source)),
        )

    def _primitive(self, source: Source, line: int) -> str:
        """The first primitive that is called on a line, which is what its diagnostics are about."""
        text = source.lines[line - 1] if 0 < line <= len(source.lines) else ""
        words = re.findall(r"(\w+)\(", text)
        return next((word for word in words if word in self.registry.primitives), "")
