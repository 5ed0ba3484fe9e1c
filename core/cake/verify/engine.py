"""The engine: typed instances, static rules, the machine's facts, rules on facts; one error a cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING

from cake.diagnostics import Diagnostic, KernelErrors, Label, error
from cake.ir import Instance, Kernel, instantiate
from cake.ir.arch import admits
from cake.ir.evaluate import EvaluationError
from cake.kinds.rule import Rule
from cake.machine import facts as ft
from cake.machine.engine import ASSIGNMENTS, run, usual_blocks
from cake.verify.causes import root_causes
from cake.verify.contained import RULE_SECONDS, Contained
from cake.verify.coverage import Taken, gaps, reach
from cake.verify.instances import Choice, choose
from cake.verify.paths import with_paths
from cake.verify.plain import describe

if TYPE_CHECKING:
    from cake.plugins import Registry


MAX_CHOICES = 8
"""Shapes executed at most: the usual ones, then some for branches that those do not take."""


@dataclass(frozen=True, slots=True)
class Report:
    """What verification says. `instances` are the shapes executed, `unchecked` what was left out and why."""

    diagnostics: tuple[Diagnostic, ...]
    instances: tuple[str, ...]
    unchecked: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """No error; warnings do not refuse."""
        return not any(d.severity == "error" for d in self.diagnostics)


def check(
    kernel: Kernel,
    registry: Registry,
    *,
    dims: Mapping[str, int] | None = None,
    constants: Mapping[str, int | float] | None = None,
    arch: str | None = None,
    budget: float = 10.0,
) -> Report:
    """Judge `kernel` on `dims`, or on small shapes that cover it. Raises nothing for any parsed kernel.

    `budget`: seconds after which no further shape is begun.
    """
    began = perf_counter()
    given = dict(constants or {})
    choices = [Choice(dims, {})] if dims is not None else choose(kernel, given)
    found: list[Diagnostic] = []
    shown: list[str] = []
    unchecked = _disabled(registry)
    rules = Contained(unchecked, RULE_SECONDS)
    if not choices:
        unchecked.append("not executed: no small shape that meets the contract was found")
        found.append(_unexecuted(kernel))
    taken: Taken = set()
    number = 0
    while number < len(choices):
        choice = choices[number]
        if any(d.severity == "error" for d in found):
            rest = len(choices) - number
            unchecked.append(f"{rest} more small shapes wait until the errors above are mended")
            break
        if perf_counter() - began > budget:
            unchecked.append(
                f"{len(choices) - number} more small shapes: the {budget:g} s for a check are over"
            )
            break
        try:
            instance = instantiate(
                kernel, choice.dims, {**given, **choice.constants}, primitives=registry.primitives, arch=arch
            )
        except KernelErrors as refused:
            found += refused.diagnostics
            break
        shown.append(instance.title)
        diagnostics, reached = _judge(instance, registry, rules, choice.blocks, chosen=dims is None)
        found += [d if d.instance else replace(d, instance=instance.title) for d in diagnostics]
        taken |= reached
        number += 1
        if number == len(choices) and dims is None and number < MAX_CHOICES:
            choices += _further(kernel, given, choices, taken)[: MAX_CHOICES - number]
    if not any(d.severity == "error" for d in found):
        unchecked += map(str, gaps(kernel.body, taken))
    seconds = perf_counter() - began
    return Report(tuple(_distinct(found)), tuple(shown), tuple(dict.fromkeys(unchecked)), seconds)


def _disabled(registry: Registry) -> list[str]:
    """Rules whose file does not load say nothing: that much is not checked."""
    broken = [p for p in registry.plugins if p.kind == "rule" and p.error]
    return [f"{p.path}:{p.line} does not load: {p.error}" for p in broken]


def _further(
    kernel: Kernel, constants: Mapping[str, int | float], choices: list[Choice], taken: Taken
) -> list[Choice]:
    """Shapes and CTAs that take the branches which those before did not."""
    found: list[Choice] = []
    for gap in gaps(kernel.body, taken):
        choice = reach(kernel, constants, choices[0], gap)
        if choice is not None and choice not in [*choices, *found]:
            found.append(choice)
    return found


def _unexecuted(kernel: Kernel) -> Diagnostic:
    """Nothing was run, so nothing is known: refused rather than passed."""
    spans = [condition.span for condition in kernel.requires]
    message = "no shape small enough to execute meets the contract"
    return error(
        "contract/unexecuted", message, spans[0] if spans else kernel.span, help="give a shape by --dim"
    )


def _judge(
    instance: Instance, registry: Registry, rules: Contained, blocks: tuple[int, ...], *, chosen: bool
) -> tuple[list[Diagnostic], Taken]:
    """One instance: static rules first; the machine only where they found no error. A run that is cut off
    refuses a small shape that was chosen here, and is said to be unchecked on a shape that was asked for.
    Beside the diagnostics, which branches were taken."""
    static = static_findings(instance, registry, rules)
    if any(d.severity == "error" for d in static):
        return static, set()
    try:
        facts = _observed(instance, [*usual_blocks(instance), *blocks])
    except EvaluationError as e:
        return [*static, error("type/no-value", e.message, e.span)], set()
    facts.findings = root_causes(facts)
    cut = next(facts.of(ft.Runaway), None)
    if cut is not None and not chosen:
        rules.unchecked.append(f"{instance.title}: what its CTAs do after {cut.steps} instructions")
        facts.findings = [f for f in facts.findings if not isinstance(f, ft.Runaway)]
    told: list[Diagnostic] = []
    unspoken = list(facts.findings)
    for rule in (r for r in _rules(instance, registry) if r.needs == "facts"):
        said = list(with_paths(rules.apply(rule, facts), facts))
        told += said
        if said:  # a rule that claims a finding and then fails or keeps silent has not spoken for it
            unspoken = [f for f in unspoken if not rules.claims(rule, f)]
    return [*static, *told, *(describe(f) for f in unspoken)], facts.taken


def _observed(instance: Instance, blocks: list[int]) -> ft.Facts:
    """The machine's facts; of a kernel that reads numbers from memory under the first assignment that shows a
    fault, and what was taken under all."""
    reads = any(primitive.scalar for primitive, _ in instance.sites.values())
    taken: Taken = set()
    for assignment in ASSIGNMENTS if reads else ASSIGNMENTS[:1]:
        facts = run(instance, blocks=blocks, assignment=assignment).facts
        taken |= facts.taken
        if facts.findings:
            break
    facts.taken = taken
    return facts


def static_findings(instance: Instance, registry: Registry, rules: Contained) -> list[Diagnostic]:
    """What the rules say that read the typed instance alone."""
    static = [r for r in _rules(instance, registry) if r.needs == "instance"]
    return rules.each(static, ft.Facts(instance, ()))


def _rules(instance: Instance, registry: Registry) -> list[Rule]:
    return [r for r in registry.rules.values() if admits(r.archs, instance.arch)]


def _distinct(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """One diagnostic for each code and place, in order of the text."""
    seen: dict[tuple[str, Label], Diagnostic] = {}
    for diagnostic in diagnostics:
        seen.setdefault((diagnostic.code, Label(diagnostic.primary.span)), diagnostic)
    return sorted(seen.values(), key=lambda d: (d.primary.span, d.code))
