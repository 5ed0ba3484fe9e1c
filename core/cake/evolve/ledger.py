"""The ledger of failures: what makes two failures the same, and when one deserves a plugin against it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from cake.evaluate.verdict import LATE, Stage, Verdict

CASE_COUNT, CASE_LINEAGES = 3, 2
"""A failure that was caught late so many times, in so many lineages, is a case for a new plugin."""

_PARTICULAR = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"|0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Signature:
    """What failures have in common: where they were caught, the code, the instruction, and the cause in
    words without names and numbers."""

    stage: Stage
    code: str
    primitive: str
    cause: str

    @property
    def id(self) -> str:
        """A stable name of 16 hexadecimal digits."""
        text = "\0".join((self.stage, self.code, self.primitive, self.cause))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def signature(verdict: Verdict) -> Signature:
    """The signature of a verdict that failed."""
    return Signature(verdict.stage, verdict.code, verdict.primitive, normalize(verdict.message))


def normalize(message: str) -> str:
    """A message without what is particular to one kernel: quoted names and numbers become a dot.

    >>> normalize("`at` is read here, 16 bytes before stage 2")
    '· is read here, · bytes before stage ·'
    """
    return " ".join(_PARTICULAR.sub("·", message).split())[:200]


def is_case(stage: str, count: int, lineages: int) -> bool:
    """Whether a failure recurs so often, in kernels of different descent, and is caught so late."""
    return stage in LATE and count >= CASE_COUNT and lineages >= CASE_LINEAGES
