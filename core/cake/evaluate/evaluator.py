"""What the loop needs of an evaluator, and what an evaluator needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from cake.evaluate.verdict import Verdict

Backend = Literal["machine", "cuda"]
"""`machine` stops after the predicted time (and compiles winners); `cuda` runs them on this host's GPU."""


@dataclass(frozen=True, slots=True)
class Target:
    """What candidates are judged for: a task at one shape on one device."""

    task: str
    dims: Mapping[str, int]
    arch: str
    device: str
    backend: Backend
    seed: int

    def as_json(self) -> dict[str, Any]:
        """Plain data; `Target(**data)` reads it back."""
        return {
            "task": self.task,
            "dims": dict(self.dims),
            "arch": self.arch,
            "device": self.device,
            "backend": self.backend,
            "seed": self.seed,
        }


class Evaluator(Protocol):
    """Judges kernel texts. A candidate's fault, whatever it is, is a verdict and never an exception."""

    def evaluate(self, text: str, beat: float | None) -> Verdict:
        """Climb the ladder. `beat`: seconds of the best so far, which costly stages may be kept for."""
        ...

    def close(self) -> None:
        """Stop what runs in the background."""
        ...
