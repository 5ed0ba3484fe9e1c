"""What the ladder says about a candidate: plain data that travels as JSON between processes and into git."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

Stage = Literal["parse", "types", "rules", "machine", "time", "compile", "correctness", "timing"]
STAGES: tuple[Stage, ...] = get_args(Stage)
"""The ladder's stages, cheapest first."""

LATE: frozenset[Stage] = frozenset({"machine", "compile", "correctness", "timing"})
"""Stages at which a failure is caught late: a rule could have told sooner."""


@dataclass(frozen=True, slots=True)
class Step:
    """One stage that ran, and what it cost in wall-clock seconds."""

    stage: Stage
    seconds: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that one launch takes, predicted or measured: the middle and its interval."""

    seconds: float
    low: float
    high: float
    device: str
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a candidate's climb. `stage` is the last stage that ran; where it failed there, `code`,
    `message`, `line` (1-based, 0: no place) and `primitive` (the instruction there) say why.
    `unchecked` says what could not be decided."""

    ok: bool
    stage: Stage
    steps: tuple[Step, ...] = ()
    code: str = ""
    message: str = ""
    line: int = 0
    primitive: str = ""
    diagnostics: tuple[Mapping[str, Any], ...] = ()
    symptoms: tuple[str, ...] = ()
    predicted: Timing | None = None
    resources: Mapping[str, Any] | None = None
    measured: Timing | None = None
    unchecked: tuple[str, ...] = ()

    @property
    def timing(self) -> Timing | None:
        """What the candidate is compared by: the measurement, else the prediction; None where it failed."""
        return (self.measured or self.predicted) if self.ok else None

    @property
    def seconds(self) -> float:
        """Wall-clock seconds that the whole judgement cost."""
        return sum(step.seconds for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        """Plain data; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """The verdict that `as_json` wrote. Raises TypeError or KeyError where the data is no verdict."""
        fields = dict(data)
        fields["steps"] = tuple(Step(**step) for step in fields["steps"])
        fields["diagnostics"] = tuple(fields["diagnostics"])
        fields["symptoms"] = tuple(fields["symptoms"])
        fields["unchecked"] = tuple(fields["unchecked"])
        for name in ("predicted", "measured"):
            fields[name] = Timing(**fields[name]) if fields[name] else None
        return cls(**fields)


def beats(new: Timing, old: Timing) -> bool:
    """Whether `new` is faster than `old` beyond doubt: measured intervals must be disjoint.

    Predictions of one model share its error, so that the same least gain (0.1 %) decides as a tie-break.
    """
    if new.detail.get("samples"):
        return new.high < old.low
    return new.seconds < old.seconds * 0.999
