"""Mutants: one operator, one place, one changed kernel, parsed again from its text: its places are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from random import Random

from cake.diagnostics import Span
from cake.ir import instantiate, nodes, parse, print_kernel
from cake.mutate.survey import Subject, survey
from cake.plugins import Registry
from cake.verify.instances import Choice, choose

Edit = tuple[nodes.Kernel, str]
"""A changed kernel and what was changed, in one line."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A way to change a kernel. `edits` yields every single change of this kind."""

    name: str
    does: str
    edits: Callable[[Subject], Iterator[Edit]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`kernel` is the parent with one change: `removed` and `added` are the lines of the canonical text that
    differ, `span` is the first changed place of the mutant's own text."""

    operator: str
    description: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    span: Span
    kernel: nodes.Kernel

    @property
    def text(self) -> str:
        return self.kernel.source.text

    @property
    def difference(self) -> str:
        """The changed lines as a difference, one a line."""
        return "\n".join([*(f"- {line}" for line in self.removed), *(f"+ {line}" for line in self.added)])


def subject(kernel: nodes.Kernel, registry: Registry, dims: Mapping[str, int] | None = None) -> Subject:
    """`kernel` made ready: canonical, on `dims` or the first small shape that its check executes.

    Raises KernelErrors for a kernel that cannot be instantiated there.
    """
    canonical = parse(print_kernel(kernel), kernel.source.path)
    choice = Choice(dims, {}) if dims is not None else next(iter(choose(canonical, {})), Choice({}, {}))
    instance = instantiate(canonical, choice.dims, choice.constants, primitives=registry.primitives)
    return Subject(canonical, instance, survey(instance), registry.primitives)


def derive(
    subject: Subject, operators: Sequence[Operator], sample: int | None = None, seed: int = 0
) -> list[Mutant]:
    """Every mutant by every operator, in a fixed order, each text once: the first operator has it.

    With `sample`, at most that many, drawn by `seed` from the operators in turn.
    """
    original = print_kernel(subject.kernel)
    seen = {original}
    drafts: list[_Draft] = []
    for operator in operators:
        for kernel, description in operator.edits(subject):
            text = print_kernel(kernel)
            if text not in seen:
                seen.add(text)
                drafts.append(_Draft(operator.name, description, text))
    if sample is not None:
        drafts = _drawn(drafts, sample, Random(seed))
    return [_mutant(draft, original, subject.kernel.source.path) for draft in drafts]


@dataclass(frozen=True, slots=True)
class _Draft:
    operator: str
    description: str
    text: str


def _drawn(drafts: list[_Draft], sample: int, rng: Random) -> list[_Draft]:
    """One of each operator in turn, so that those with few mutants are seen too; in their first order."""
    piles: dict[str, list[int]] = {}
    for number, draft in enumerate(drafts):
        piles.setdefault(draft.operator, []).append(number)
    for pile in piles.values():
        rng.shuffle(pile)
    turns = list(piles.values())
    rng.shuffle(turns)
    drawn: list[int] = []
    while turns and len(drawn) < sample:
        drawn += [pile.pop() for pile in turns][: sample - len(drawn)]
        turns = [pile for pile in turns if pile]
    return [drafts[number] for number in sorted(drawn)]


def _mutant(draft: _Draft, original: str, path: str) -> Mutant:
    lines = draft.text.split("\n")
    removed, added, number = _changed(original.split("\n"), lines)
    line = lines[number - 1]
    span = Span(number, len(line) - len(line.lstrip()), number, len(line))
    return Mutant(draft.operator, draft.description, removed, added, span, parse(draft.text, path))


def _changed(old: list[str], new: list[str]) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """The lines that differ, and the number of the first in `new`: of a removal, of the line in its place."""
    removed: list[str] = []
    added: list[str] = []
    first = 0
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            removed += [line.strip() for line in old[a:b]]
            added += [line.strip() for line in new[c:d]]
            first = first or min(c + 1, len(new))
    return tuple(removed), tuple(added), first or 1
