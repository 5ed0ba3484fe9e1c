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
from math import prod
from typing import TYPE_CHECKING, Any

from cake.device.driver import DeviceFault
from cake.diagnostics import Diagnostic, KernelErrors, Source, as_json
from cake.errors import CakeError, MissingEnvironment
from cake.evaluate.evaluator import Target
from cake.evaluate.values import Fall, check_values
from cake.evaluate.verdict import Stage, Step, Timing, Verdict
from cake.ir import Instance, Kernel, content_hash, instantiate, parse
from cake.ir.arch import canonical
from cake.ir.nodes import Expr, Int, Name
from cake.kinds.device import Device
from cake.kinds.task import Task

if TYPE_CHECKING:
    from cake.codegen import LaunchPlan
    from cake.evaluate.on_device import OnDevice
    from cake.plugins import Registry

SHOWN_AS = "candidate.cake"
"""The path that diagnostics name: a candidate lies in the record, not in a file."""


def fingerprint(text: str) -> str:
    """The content hash of a kernel text; of its bytes where it does not parse."""
    try:
        return content_hash(parse(text))
    except KernelErrors:
        return hashlib.sha256(b"text\0" + text.encode()).hexdigest()


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
    unchecked: list[str] = field(default_factory=list)

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
            unchecked=tuple(self.unchecked),
            **failure,
        )


class Ladder:
    """Judges texts for one target. Raises CakeError at once where the target's plugins or GPU are missing."""

    def __init__(self, registry: Registry, target: Target) -> None:
        self.registry = registry
        self.target = target
        self.task: Task = registry.get("task", target.task)
        self.device: Device = registry.get("device", target.device)
        self.chip = canonical(self.device.arch)
        self.gpu: OnDevice | None = None
        if target.backend == "cuda":
            from cake.evaluate.on_device import OnDevice

            self.gpu = OnDevice(self.task, target, self.device)

    def climb(self, text: str, beat: float | None, entering: Callable[[Stage], None]) -> Verdict:
        """Climb to the first failure or the backend's last stage; a verdict for any text.

        Raises MissingEnvironment where GPU, compiler or disk are gone: no fault of the candidate.
        """
        climb = Climb(entering)
        try:
            self._stages(text, beat, climb)
        except KernelErrors as refusal:
            return self._refused(climb, refusal.diagnostics, refusal.source)
        except (Fall, DeviceFault) as fall:
            return climb.end(code=fall.code, message=str(fall))
        except CakeError:
            raise
        except Exception as error:  # cake's own fault on this candidate: the session goes on, and says so
            where = traceback.extract_tb(error.__traceback__)[-1]
            words = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno} of {where.filename})"
            return climb.end(code="ladder/internal", message=words)
        return climb.end()

    def _stages(self, text: str, beat: float | None, climb: Climb) -> None:
        with climb.on("parse"):
            kernel = parse(text, SHOWN_AS)
        with climb.on("types"):
            self._check_interface(kernel)
            instance = self._instantiate(kernel)
        self._verify(kernel, climb)
        with climb.on("time"):
            self._predict(instance, climb)
        if self.gpu is not None:
            self._run(self.gpu, kernel, instance, climb)
        elif beat is None or (climb.predicted and climb.predicted.seconds < beat):
            # Without a GPU only what would be a winner is compiled: the others are beaten already.
            self._confirm(instance, climb)

    def _instantiate(self, kernel: Kernel) -> Instance:
        """The kernel at the target shape, for the device's own architecture."""
        return instantiate(kernel, self.target.dims, primitives=self.registry.primitives, arch=self.chip)

    def _verify(self, kernel: Kernel, climb: Climb) -> None:
        """Rules over the typed kernel, then the machine's facts, then its values."""
        from cake.verify import check

        with climb.on("rules"):
            report = check(kernel, self.registry, arch=self.chip)
            errors = [d for d in report.diagnostics if d.severity == "error"]
            if errors and self._from_machine(errors[0]):
                climb.stage = "machine"
            if errors:
                raise KernelErrors(
                    [*errors, *(d for d in report.diagnostics if d not in errors)], kernel.source
                )
        with climb.on("machine"):
            runs = check_values(kernel, self.registry, self.task, self.target, self.chip)
            if not runs:
                climb.unchecked.append("values: the contract admits no instance small enough to run whole")
        climb.unchecked += map(str, report.unchecked)

    def _from_machine(self, diagnostic: Diagnostic) -> bool:
        """Whether a diagnostic rests on the machine's facts, not on the typed kernel alone."""
        rule = self.registry.rules.get(diagnostic.code)
        return rule.needs == "facts" if rule else diagnostic.code.startswith("machine/")

    def _predict(self, instance: Instance, climb: Climb, registers: int | None = None) -> None:
        from cake.cost import predict

        flops = self.task.flops(self.target.dims)
        found = predict(instance, self.registry, self.device.name, registers=registers, flops=flops)
        detail = {
            "bound": found.bound,
            "by_unit": dict(found.by_unit),
            "floor_seconds": found.floor_seconds,
            "registers": found.occupancy.registers,
            "provenance": found.provenance,
        }
        climb.symptoms = found.symptoms
        climb.predicted = Timing(found.seconds, found.low, found.high, self.device.name, detail)

    def _confirm(self, instance: Instance, climb: Climb) -> None:
        """Compile what seems to be a winner, and predict it again with the registers that it really takes."""
        with climb.on("compile"):
            if self._compile(instance, climb) is None or climb.resources is None:
                return
            spilled = climb.resources["spill_bytes"]
            if spilled:
                raise Fall(
                    "res/spills", f"{spilled} bytes of registers spill, which the prediction leaves out"
                )
            self._predict(instance, climb, climb.resources["registers"])

    def _compile(self, instance: Instance, climb: Climb) -> tuple[bytes, LaunchPlan] | None:
        from cake.codegen import compile_source, generate

        generated = generate(instance)
        try:
            cubins = self.registry.root / ".cake" / "cubins"
            compiled = compile_source(generated.source, instance.arch, cache_dir=cubins, path=SHOWN_AS)
        except MissingEnvironment as missing:
            if self.gpu is not None:
                raise
            climb.unchecked.append(f"compile: {missing}")
            return None
        climb.resources = {
            "registers": compiled.registers,
            "spill_bytes": compiled.spill_bytes,
            "shared_bytes": generated.plan.dynamic_shared_bytes + compiled.static_shared_bytes,
            "notes": list(compiled.notes),
        }
        return compiled.cubin, generated.plan

    def _run(self, gpu: OnDevice, kernel: Kernel, instance: Instance, climb: Climb) -> None:
        """Compile, prove and time on this host's GPU."""
        with climb.on("compile"):
            compiled = self._compile(instance, climb)
            assert compiled is not None
        with climb.on("correctness"):
            gpu.check_hostile(kernel, self.registry.primitives, instance.arch)
            gpu.check(*compiled)
        with climb.on("timing"):
            climb.measured = gpu.time(*compiled)
            least = self._floor()
            if climb.measured.seconds < least:
                words = f"measured {climb.measured.seconds:.3e} s, but reading the inputs and the arithmetic"
                raise Fall("timing/below-floor", f"{words} take {least:.3e} s on {self.device.name}")

    def _floor(self) -> float:
        """Seconds that no kernel for this work can beat: its inputs come from memory, what it writes may stay
        in the cache."""
        from cake.cost import floor
        from cake.ir.types import DType

        inputs = [tensor for tensor in self.task.tensors.values() if not tensor.output]
        sizes = [prod(self.target.dims[axis] for axis in t.shape) * DType(t.dtype).bytes for t in inputs]
        flops = self.task.flops(self.target.dims)
        return floor(self.registry, self.device.name, bytes=sum(sizes), flops=flops).seconds

    def _check_interface(self, kernel: Kernel) -> None:
        """The kernel takes and gives exactly the task's tensors, by name, dtype and axes."""
        found = {param.name: param for param in kernel.params}
        for name, tensor in self.task.tensors.items():
            param = found.pop(name, None)
            axes = [self._axis(axis) for axis in param.shape] if param else []
            said = param and (param.dtype, param.output)
            # A square target would not tell two axes apart, so that names are compared, not extents.
            fits = len(axes) == len(tensor.shape) and all(
                axis in (wanted, self.target.dims[wanted])
                for axis, wanted in zip(axes, tensor.shape, strict=True)
            )
            if said != (tensor.dtype, tensor.output) or not fits:
                way = "GlobalOut" if tensor.output else "Global"
                needed = f"{name}: {way}[{', '.join([tensor.dtype, *tensor.shape])}]"
                raise Fall("type/interface", f"task {self.task.name()} needs {needed}")
        if found:
            raise Fall("type/interface", f"task {self.task.name()} has no tensor {next(iter(found))}")

    @staticmethod
    def _axis(axis: Expr) -> str | int | None:
        """The name or the extent of a parameter's axis, None for anything else."""
        return axis.id if isinstance(axis, Name) else axis.value if isinstance(axis, Int) else None

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
