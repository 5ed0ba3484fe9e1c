"""Tactic: an optimization move, one file (tactics/NAME.py), a pure rewrite of kernels with preconditions.

The docstring's headings are Symptom, Change, Mechanism, Boundary, Verify. A tactic is named by its move,
in the imperative. `evidence` refers to measured runs that are committed under history/.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from cake.ir.nodes import Kernel

Symptom = Literal[
    "tensor_idle",
    "copy_latency_exposed",
    "shared_port_bound",
    "memory_bound",
    "issue_bound",
    "l2_reuse_low",
    "tail_wave",
    "occupancy_low",
    "epilogue_exposed",
    "narrow_accesses",
]
"""The closed vocabulary of the cost report."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a tactic may look at: the symptoms of the last prediction, dims and constants of the instance."""

    symptoms: frozenset[str]
    dims: Mapping[str, int]
    arch: str


@dataclass(frozen=True, slots=True)
class Move:
    """One concrete application: a stable key (parameters in it), what it does, and its parameters."""

    key: str
    summary: str
    parameters: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """Evidence: a record in history/, the measured ratio (>1 is faster) and its interval."""

    record: str
    ratio: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Rewrites:
    """`before` becomes exactly `after` (canonical text) by the move `key`; both compute the same values."""

    name: str
    before: str
    after: str
    key: str
    dims: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refuses:
    """A kernel on which the tactic offers no move (`key` empty) or not the move `key`."""

    name: str
    before: str
    key: str = ""
    dims: Mapping[str, int] = field(default_factory=dict)


class Tactic(ABC):
    """One move. `sites` offers concrete moves on a kernel, `apply` makes one; both are pure."""

    symptoms: ClassVar[frozenset[str]] = frozenset()
    evidence: ClassVar[tuple[Run, ...]] = ()
    cases: ClassVar[tuple[Rewrites | Refuses, ...]] = ()

    @classmethod
    def slug(cls) -> str:
        """`DeepenRing` -> `deepen_ring`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @abstractmethod
    def sites(self, kernel: Kernel, report: Report) -> Iterator[Move]:
        """The moves that make sense here, most promising first; none where a precondition fails."""

    @abstractmethod
    def apply(self, kernel: Kernel, move: Move) -> Kernel:
        """The rewritten kernel. The result is judged like any other proposal."""
