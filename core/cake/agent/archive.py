"""Which candidate to go on from, and the seeds of every random choice in a session."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence

from cake.evaluate.verdict import beats
from cake.kinds.proposer import Past
from cake.store.store import Entry

WIDTH = 8
"""So many of the best candidates may become parents."""

GREED = 0.6
"""Chance that the best one is taken; of those that remain, the next has the same chance, and so on."""


def derive(seed: int, *parts: int | str) -> int:
    """A seed of 63 bits for one choice, independent of those for all other choices."""
    text = ":".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def past(entry: Entry) -> Past:
    """A judged candidate as proposers see it."""
    candidate, verdict = entry.candidate, entry.verdict
    timing = verdict.timing if verdict else None
    return Past(
        id=candidate.id,
        parent=candidate.parent or "",
        text=candidate.text,
        move=candidate.move,
        stage=verdict.stage if verdict else "",
        code=verdict.code if verdict else "",
        score=timing.seconds if timing else None,
        symptoms=verdict.symptoms if verdict else (),
    )


def best(entries: Iterable[Entry]) -> Entry | None:
    """The fastest candidate beyond doubt: a later one must beat the best before it."""
    found: Entry | None = None
    for entry in entries:
        if entry.verdict is None or entry.verdict.timing is None:
            continue
        old = found.verdict.timing if found and found.verdict else None
        if old is None or beats(entry.verdict.timing, old):
            found = entry
    return found


def parents(history: Sequence[Past], seed: int) -> list[Past]:
    """The valid candidates in the order to try them as parent: a draw from the best, then the rest."""
    valid = [p for p in history if p.score is not None]
    ranked = sorted(valid, key=lambda p: (p.score or 0.0, p.id))
    # Only random(): the other methods of Random may change between versions of Python.
    draw = random.Random(seed).random
    chosen = 0
    while chosen < min(len(ranked), WIDTH) - 1 and draw() > GREED:
        chosen += 1
    return ranked[chosen : chosen + 1] + ranked[:chosen] + ranked[chosen + 1 :]
