"""Proposer: where candidate kernels come from (plugins/agents/NAME.py).

A proposer sees what the loop recorded and answers with kernel text; it measures nothing and judges nothing.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Past:
    """A recorded candidate: its text, how it came to be, and what the ladder said. `score` is seconds
    (predicted or measured, lower is better), None where it failed."""

    id: str
    parent: str
    text: str
    move: str
    stage: str
    code: str
    score: float | None
    symptoms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: a child of `parent` for `dims` on `arch`. `seed` fixes every random choice."""

    parent: Past
    history: Sequence[Past]
    dims: Mapping[str, int]
    arch: str
    seed: int
    registry: Any


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate: kernel text, the move that led to it, free notes for the record."""

    text: str
    move: str
    notes: Mapping[str, str] = field(default_factory=dict)


class Proposer(ABC):
    """One source of candidates."""

    @classmethod
    def name(cls) -> str:
        """The proposer's name on the command line, its file's: `OddSum` -> `odd_sum`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @abstractmethod
    def propose(self, request: Request) -> Proposal | None:
        """A new candidate, or None where it has nothing more to offer. Deterministic by `request.seed`."""
