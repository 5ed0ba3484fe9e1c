"""Judging mutants: what reports each, and what the truth is where nothing does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cake.diagnostics import Diagnostic
from cake.mutate.mutant import Mutant
from cake.mutate.truth import Truth
from cake.plugins import Registry
from cake.verify import check

Verdict = Literal["killed", "equivalent", "survived"]
Stage = Literal["type", "static", "facts", "values", ""]
STAGES: tuple[Stage, ...] = ("type", "static", "facts", "values")
"""Who can kill a mutant, cheapest first; none needs a compiler or a GPU."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant: killed at `stage` by `codes` (of values: because of `reason`). `unconfirmed`:
    the machine's facts are all that speak against it; no schedule that was tried shows harm."""

    mutant: Mutant
    verdict: Verdict
    stage: Stage
    codes: tuple[str, ...]
    reason: str
    seconds: float
    """What the check took."""
    unconfirmed: bool = False

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        m = self.mutant
        return {
            "operator": m.operator,
            "description": m.description,
            "line": m.span.line,
            "removed": list(m.removed),
            "added": list(m.added),
            "verdict": self.verdict,
            "stage": self.stage,
            "codes": list(self.codes),
            "reason": self.reason,
            "unconfirmed": self.unconfirmed,
            "milliseconds": round(1e3 * self.seconds, 2),
        }


def judge(mutant: Mutant, truth: Truth, registry: Registry, *, confirm: bool = False) -> Outcome:
    """Check the mutant; where no error is reported, execute it beside the kernel it comes from.

    With `confirm`, what only the machine's facts report is executed too, to see whether it does harm.
    """
    report = check(mutant.kernel, registry, dims=truth.dims)
    errors = [d for d in report.diagnostics if d.severity == "error"]
    if errors:
        stage = min((stage_of(d, registry) for d in errors), key=STAGES.index)
        codes = tuple(dict.fromkeys(d.code for d in errors))
        harmless = confirm and stage == "facts" and not truth.misbehaviour(mutant.kernel)
        return Outcome(mutant, "killed", stage, codes, errors[0].message, report.seconds, harmless)
    if difference := truth.difference(mutant.kernel):
        return Outcome(mutant, "killed", "values", (), difference, report.seconds)
    if harm := truth.misbehaviour(mutant.kernel):
        return Outcome(mutant, "survived", "", (), harm, report.seconds)
    return Outcome(mutant, "equivalent", "", (), "", report.seconds)


def stage_of(diagnostic: Diagnostic, registry: Registry) -> Stage:
    """Which part of the check reports it: the typing of an instance, a static rule, or the facts."""
    rule = registry.rules.get(diagnostic.code)
    if rule is not None:
        return "static" if rule.needs == "instance" else "facts"
    return "facts" if diagnostic.code.startswith("machine/") else "type"


@dataclass(slots=True)
class Count:
    """How many mutants ended how."""

    killed: int = 0
    equivalent: int = 0
    survived: int = 0

    @property
    def harmful(self) -> int:
        """Mutants that do harm: all but the equivalent ones."""
        return self.killed + self.survived

    def add(self, verdict: Verdict) -> None:
        setattr(self, verdict, getattr(self, verdict) + 1)


def tally(outcomes: Iterable[Outcome]) -> dict[str, Count]:
    """Counts by operator, in order of first appearance."""
    counts: dict[str, Count] = {}
    for outcome in outcomes:
        counts.setdefault(outcome.mutant.operator, Count()).add(outcome.verdict)
    return counts


def false_alarms(
    mutants: Iterable[Mutant], registry: Registry, dims: Mapping[str, int] | None = None
) -> Iterator[tuple[Mutant, Diagnostic]]:
    """Of rewrites that keep what a kernel does, those that the check reports, each with its first report."""
    for mutant in mutants:
        if diagnostics := check(mutant.kernel, registry, dims=dims).diagnostics:
            yield mutant, diagnostics[0]
