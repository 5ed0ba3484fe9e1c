"""What all engines share: the failure, marks in kernel texts, verification, runs on the machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cake.diagnostics import Diagnostic, KernelErrors, Source, render
from cake.ir import parse
from cake.ir.instance import Instance, instantiate
from cake.ir.types import DType
from cake.machine.engine import run
from cake.plugins import PluginRecord, Registry
from cake.verify import check as verify

Array = np.ndarray[Any, Any]
Named = tuple[str, Callable[[], None]]
Engine = Callable[[Registry, PluginRecord, Any, Sequence[Any]], Iterable[Named]]
"""Names and checks of one plugin with its own cases and hidden ones."""


class Failed(AssertionError):
    """A check does not hold; the message says what is wrong and what to do."""


_MARK = re.compile(r"\s*#([!>])\s*(.*?)\s*$")


@dataclass(frozen=True, slots=True)
class Marked:
    """A case's kernel without its marks: codes by faulty line, words by second place."""

    text: str
    faults: frozenset[tuple[int, str]]
    seconds: tuple[tuple[int, str], ...]


def read_marks(text: str, own_code: str = "") -> Marked:
    """Take `#! code` and `#> words` off the lines they end; a bare `#!` means `own_code`."""
    lines: list[str] = []
    faults: set[tuple[int, str]] = set()
    seconds: list[tuple[int, str]] = []
    for number, line in enumerate(dedent(text).split("\n"), 1):
        head, *marks = re.split(r"(?=\s*#[!>])", line)
        for mark in marks:
            match = _MARK.fullmatch(mark)
            if match is None:
                continue
            kind, words = match.groups()
            if kind == "!":
                faults.update((number, code) for code in words.replace(",", " ").split() or [own_code])
            else:
                seconds.append((number, words))
        lines.append(head)
    return Marked("\n".join(lines), frozenset(faults), tuple(seconds))


def dedent(text: str) -> str:
    lines = text.strip("\n").split("\n")
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines).rstrip() + "\n"


def judge(registry: Registry, text: str, dims: Mapping[str, int], path: str) -> tuple[Diagnostic, ...]:
    """Everything that verification says about a kernel text, from syntax to the machine's facts."""
    try:
        report = verify(parse(text, path), registry, dims=dict(dims) or None)
    except KernelErrors as refusal:
        return refusal.diagnostics
    return tuple(report.diagnostics)


def expect_marked(registry: Registry, marked: Marked, dims: Mapping[str, int], path: str) -> None:
    said = judge(registry, marked.text, dims, path)
    got = {(d.primary.span.line, d.code) for d in said}
    if got != marked.faults:
        lines = [f"not reported: line {line}: {code}" for line, code in sorted(marked.faults - got)]
        lines += [f"not marked: line {line}: {code}" for line, code in sorted(got - marked.faults)]
        raise Failed("\n".join([*lines, render(said, Source(path, marked.text))]))
    places = [(label.span.line, label.message) for d in said for label in d.secondary]
    for line, words in marked.seconds:
        if not any(at == line and words in message for at, message in places):
            raise Failed(f"no second place {words!r} on line {line}; got {places}")


def expect_silent(registry: Registry, text: str, dims: Mapping[str, int], path: str) -> None:
    expect_marked(registry, Marked(dedent(text), frozenset(), ()), dims, path)


def demand(condition: bool, message: str) -> None:
    if not condition:
        raise Failed(message)


def demand_cases(record: PluginRecord, cases: Sequence[Any], *kinds: type) -> None:
    for kind in kinds:
        if not any(isinstance(case, kind) for case in cases):
            raise Failed(f"{record.path}:{record.line}: add a case {kind.__name__}(...) to `cases`")


# --- values on the machine ----------------------------------------------------------------------------------


def instance_of(
    registry: Registry, text: str, dims: Mapping[str, int], where: str, arch: str | None = None
) -> Instance:
    return instantiate(parse(text, where), dims, primitives=registry.primitives, arch=arch)


def outputs_of(instance: Instance, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    """The outputs of all CTAs on the machine. Raises Failed for a fault or bytes left unwritten."""
    done = run(instance, inputs=inputs)
    demand(not done.facts.findings, f"the machine found {done.facts.findings[:1]}")
    for name, written in done.written.items():
        demand(
            bool(np.all(written)),
            f"{name}: {np.count_nonzero(~written)} of {written.size} elements unwritten",
        )
    return done.outputs


def random_inputs(instance: Instance, seed: int) -> dict[str, Array]:
    """Random normal inputs in the tensors' dtypes, small integers for i32."""
    rng = np.random.default_rng(seed)
    out: dict[str, Array] = {}
    for buffer in instance.buffers.values():
        if buffer.space != "global" or buffer.output:
            continue
        if buffer.dtype is DType.i32:
            out[buffer.name] = rng.integers(-100, 100, buffer.shape, dtype=np.int32)
        else:
            out[buffer.name] = rng.standard_normal(buffer.shape).astype(buffer.dtype.numpy)
    return out


def compare(got: Array, want: Array, rtol: float, what: str) -> None:
    """Equal within `rtol` of the largest finite value, NaN and infinities in the same places. Raises
    Failed."""
    left, right = np.asarray(got, np.float64), np.asarray(want, np.float64)
    demand(left.shape == right.shape, f"{what}: shape {left.shape}, expected {right.shape}")
    finite = np.isfinite(right)
    scale = float(np.max(np.abs(right[finite]), initial=0.0))
    difference = np.zeros_like(right)
    np.subtract(left, right, out=difference, where=finite)
    same = np.where(
        finite, np.abs(difference) <= rtol * scale, (left == right) | (np.isnan(left) & np.isnan(right))
    )
    if not bool(np.all(same)):
        at = tuple(int(axis[0]) for axis in np.nonzero(~same))
        count = int(np.count_nonzero(~same))
        raise Failed(
            f"{what}{list(at)} is {left[at]:g}, expected {right[at]:g} ({count} of {same.size} differ)"
        )
