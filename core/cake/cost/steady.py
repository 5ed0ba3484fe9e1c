"""Long loops, shortened: which loops a CTA runs how often, and its whole timeline from a few short ones.

In the steady state each pass of a loop takes the same time. So a CTA is run with each long loop cut to a low
and to a high count, in every combination; the result is multilinear in the counts: exact for what each pass
adds (bytes, busy cycles), and for the time once pipelines are full. Roles that share a pipeline are cut
alike: counts that differ by less than a ring's depth lose the same number of passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from itertools import product

from cake.cost.clock import Timeline
from cake.machine.program import Branch, Elected, Loop, Program, Step

RING = 8
"""Counts that differ by no more belong to one pipeline: the deepest rings have so many stages."""

INNER = (7, 11)
"""Passes of a loop without loops inside: past the depth of most rings, then a steady stretch."""

MOST_CUTS = 3
"""Each doubles the runs; of more different loops the shorter ones run in full."""

OUTER = (1, 2)
"""Passes of a loop around a loop: the first fills the pipelines, the second overlaps with its end."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Loops of one depth with about `count` passes, to run `low` and `high` times instead."""

    depth: int
    count: int
    low: int
    high: int

    @property
    def at(self) -> float:
        """Where `count` lies when `low` is 0 and `high` is 1."""
        return (self.count - self.low) / (self.high - self.low)


@dataclass(slots=True)
class Counts:
    """A `Trips` that runs each loop as if once and notes how often it would run."""

    nested: dict[int, bool]
    seen: dict[tuple[int, int], bool]
    """(depth, count) -> whether any such loop has a loop inside."""

    def __call__(self, loop: Loop, start: int, stop: int, step: int) -> range:
        passes = range(start, stop, step)
        name = (loop.depth, len(passes))
        self.seen[name] = self.seen.get(name, False) or self.nested[id(loop)]
        return passes[:1]


@dataclass(frozen=True, slots=True)
class Shortened:
    """A `Trips` that leaves passes out. `keep` maps (depth, count) to the passes that run: the `last` ones,
    which have the tails, or the first, whose slots and parities are those that mbarriers begin with."""

    keep: dict[tuple[int, int], int]
    last: bool
    known: frozenset[tuple[int, int]] = frozenset()
    strange: set[tuple[int, int]] = field(default_factory=set)
    """(depth, count) met that are not `known`: loops whose count changes from pass to pass."""

    def __call__(self, loop: Loop, start: int, stop: int, step: int) -> range:
        passes = range(start, stop, step)
        name = (loop.depth, len(passes))
        if name not in self.known:
            self.strange.add(name)
        keep = self.keep.get(name, len(passes))
        return passes[len(passes) - keep :] if self.last else passes[:keep]


def loop_counts(program: Program, block: int) -> dict[tuple[int, int], bool]:
    """(depth, count) of every loop of the CTA, and whether loops stand inside it.

    Inner loops are seen on the first pass of the outer ones.
    """
    nested: dict[int, bool] = {}
    for steps in (program.prologue, *program.roles.values(), program.epilogue):
        _note_nested(steps, nested)
    counts = Counts(nested, {})
    for warp in program.warps(block):
        for _ in program.run(warp, counts):
            pass
    return counts.seen


def _note_nested(steps: Sequence[Step], nested: dict[int, bool]) -> bool:
    """Enter each loop with a `range` inside; whether one stands among `steps`."""
    found = False
    for step in steps:
        if isinstance(step, Loop):
            nested[id(step)] = _note_nested(step.body, nested)
            found = found or not step.node.unroll
        elif isinstance(step, Elected):
            found = _note_nested(step.body, nested) or found
        elif isinstance(step, Branch):
            both = [_note_nested(step.body, nested), _note_nested(step.orelse, nested)]
            found = found or any(both)
    return found


def cuts(counts: dict[tuple[int, int], bool]) -> tuple[Cut, ...]:
    """What to cut: the longest loops of each depth, with those of nearly the same count."""
    out = []
    for depth in sorted({d for d, _ in counts}):
        lengths = sorted((n for d, n in counts if d == depth), reverse=True)
        while lengths:
            longest = lengths[0]
            family = [n for n in lengths if longest - n <= RING]
            lengths = lengths[len(family) :]
            low, high = _range(depth, any(counts[depth, n] for n in family), counts)
            low, high = low + longest - family[-1], high + longest - family[-1]
            if longest > high:
                out.append(Cut(depth, longest, low, high))
    return tuple(sorted(out, key=lambda cut: -cut.count)[:MOST_CUTS])


def _range(depth: int, nested: bool, counts: dict[tuple[int, int], bool]) -> tuple[int, int]:
    """Low and high passes. Around short loops as many as fill the pipelines that run on over passes."""
    if not nested:
        return INNER
    inner = max((n for d, n in counts if d == depth + 1), default=1)
    if inner > INNER[1]:
        return OUTER
    low = 1 + -(-RING // max(1, inner))
    return low, low + -(-RING // (2 * max(1, inner)))


def shortened(
    chosen: Sequence[Cut], keep: Sequence[int], counts: dict[tuple[int, int], bool], last: bool
) -> Shortened:
    """Run the loops of each cut `keep` times; shorter relatives lose as many passes."""
    passes = {}
    for cut, kept in zip(chosen, keep, strict=True):
        for depth, count in counts:
            if depth == cut.depth and 0 <= cut.count - count <= RING:
                passes[depth, count] = max(0, count - (cut.count - kept))
    return Shortened(passes, last, frozenset(counts))


def whole(run: Callable[[Shortened], Timeline], counts: dict[tuple[int, int], bool], last: bool) -> Timeline:
    """The timeline of all passes. `run` gives that of a shortened CTA; `last` as for Shortened."""
    chosen = cuts(counts)
    parts = []
    for corner in product((0, 1), repeat=len(chosen)):
        keep = [cut.high if high else cut.low for cut, high in zip(chosen, corner, strict=True)]
        weight = 1.0
        for cut, high in zip(chosen, corner, strict=True):
            weight *= cut.at if high else 1 - cut.at
        parts.append((weight, run(shortened(chosen, keep, counts, last))))
    return combined(parts)


def combined(parts: Sequence[tuple[float, Timeline]]) -> Timeline:
    """The weighted sum; rounding below zero is cut off."""
    out = Timeline()
    for weight, timeline in parts:
        out.cycles += weight * timeline.cycles
        for part in fields(Timeline):
            if part.name == "cycles":
                continue
            sums = getattr(out, part.name)
            for key, value in getattr(timeline, part.name).items():
                sums[key] += weight * value
    for part in fields(Timeline):
        if part.name != "cycles":
            values = getattr(out, part.name)
            for key in values:
                values[key] = max(0.0, values[key])
    return out
