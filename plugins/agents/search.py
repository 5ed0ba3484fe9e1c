"""Search: tactics, constant changes and small edits, chosen by a bandit over their gains. Needs no network.

Arms: each tactic · `constant` (one constant to another of its declared choices) · `constants` (two at once) ·
`edit` (drop or swap statements, nudge a number). Each arm is worth the mean reward of its moves so far,
begun with a prior, plus what is due to arms rarely tried. Moves that were tried on the same parent, and
texts that were seen, are not offered again. Every choice follows from the request's seed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import combinations
from random import Random
from typing import Any

from cake.diagnostics import KernelErrors
from cake.ir import Kernel, parse, print_kernel
from cake.ir.nodes import Constant, Do, Int, Node, Stmt, walk
from cake.kinds.proposer import Past, Proposal, Proposer, Request
from cake.kinds.tactic import Report, Tactic

EXPLORE = 0.35
"""Weight of what is due to arms rarely tried."""

JITTER = 0.1
"""Breaks ties between arms by the seed."""

UNTRIED, FAILED, CHANCE, STEP = 0.4, 0.3, 0.4, 0.05
"""Within an arm: what an untried setting promises and a failed one gives, the share of chance, what each
place in the order costs."""

FULL_REWARD = math.log(1.25)
"""A child 1.25 times faster than its parent is a full success."""

TRIES = 24
"""Moves of one arm that are applied in search of a new text before the next arm has its turn."""

Draw = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Option:
    """A move that an arm offers: its name in the record, what it does in words, and the doing."""

    move: str
    summary: str
    make: Callable[[], Kernel]


class Search(Proposer):
    """The default proposer: offline, deterministic by seed."""

    def propose(self, request: Request) -> Proposal | None:
        """A new text by the most promising arm that still has one; None where no arm has."""
        try:
            kernel = parse(request.parent.text)
        except KernelErrors:
            return None
        # Only random(): the other methods of Random may change between versions of Python.
        draw = Random(request.seed).random
        seen = {p.text for p in request.history} | {request.parent.text}
        tried = {p.move for p in request.history if p.parent == request.parent.id}
        troubles: dict[str, str] = {}
        for arm in _ranked(request, draw):
            options = [o for o in _options(arm, kernel, request, troubles) if o.move not in tried]
            for option in _ordered(options, request, draw, arm in request.registry.tactics)[:TRIES]:
                text = _made(option, troubles)
                if text is not None and text not in seen:
                    return Proposal(text, option.move, {"summary": option.summary, **troubles})
        return None


# --- the bandit -------------------------------------------------------------------------------------------


def _ranked(request: Request, draw: Draw) -> list[str]:
    """The arms, best first, by upper confidence bound."""
    scores = {p.id: p.score for p in request.history}
    rewards: dict[str, list[float]] = defaultdict(list)
    for p in request.history:
        rewards[p.move.partition(":")[0]].append(_reward(p, scores.get(p.parent)))
    rounds = math.log(1 + sum(len(values) for values in rewards.values()))

    def worth(arm: str) -> float:
        values = rewards[arm]
        mean = (_prior(arm, request) + sum(values)) / (1 + len(values))
        return mean + EXPLORE * math.sqrt(rounds / (1 + len(values))) + JITTER * draw()

    arms = [*sorted(request.registry.tactics), "constant", "constants", "edit"]
    worths = {arm: worth(arm) for arm in arms}
    return sorted(arms, key=lambda arm: -worths[arm])


def _prior(arm: str, request: Request) -> float:
    """What an untried arm promises: tactics against the parent's symptoms most, blind edits least."""
    tactic: Tactic | None = request.registry.tactics.get(arm)
    if tactic is not None:
        return 0.6 if tactic.symptoms & set(request.parent.symptoms) else 0.4
    return {"constant": 0.5, "constants": 0.5, "edit": 0.1}[arm]


def _reward(child: Past, parent: float | None) -> float:
    """0 for what failed, a little for what is valid, up to 1 for what is faster."""
    if child.score is None or parent is None:
        return 0.0
    gain = math.log(parent / child.score) / FULL_REWARD
    return 0.1 + 0.9 * min(1.0, max(0.0, gain))


def _ordered(options: list[Option], request: Request, draw: Draw, eager: bool) -> list[Option]:
    """By what the settings in each move (`BM=64`) have brought so far under any arm, and by chance.

    `eager`: the options come most promising first, which counts as well.
    """
    scores = {p.id: p.score for p in request.history}
    rewards: dict[str, list[float]] = defaultdict(list)
    for p in request.history:
        for setting in _settings(p.move):
            # A setting that failed may fit beside others; one that was slow is slow elsewhere too.
            failed = p.score is None
            rewards[setting].append(FAILED if failed else _reward(p, scores.get(p.parent)))

    def promise(option: Option) -> float:
        each = [(UNTRIED + sum(rewards[s])) / (1 + len(rewards[s])) for s in _settings(option.move)]
        return min(each)

    worths = [promise(o) + CHANCE * draw() - (STEP * i if eager else 0) for i, o in enumerate(options)]
    return [options[i] for i in sorted(range(len(options)), key=lambda i: -worths[i])]


def _settings(move: str) -> list[str]:
    return move.partition(":")[2].split(",")


# --- the arms ---------------------------------------------------------------------------------------------


def _options(arm: str, kernel: Kernel, request: Request, troubles: dict[str, str]) -> list[Option]:
    match arm:
        case "constant":
            return list(_constant_changes(kernel, 1))
        case "constants":
            return list(_constant_changes(kernel, 2))
        case "edit":
            return list(_edits(kernel))
    report = Report(frozenset(request.parent.symptoms), request.dims, request.arch)
    tactic = request.registry.tactics[arm]
    try:
        return list(_tactic_moves(arm, tactic, kernel, report))
    except Exception as error:  # a tactic is a plugin: its fault switches off itself, not the search
        troubles[f"tactic {arm}"] = f"switched off: {type(error).__name__}: {error}"
        return []


def _tactic_moves(arm: str, tactic: Tactic, kernel: Kernel, report: Report) -> Iterator[Option]:
    for move in tactic.sites(kernel, report):
        yield Option(f"{arm}:{move.key}", move.summary, lambda move=move: tactic.apply(kernel, move))


def _made(option: Option, troubles: dict[str, str]) -> str | None:
    try:
        return print_kernel(option.make())
    except Exception as error:  # as above, for `apply`
        troubles[option.move] = f"failed: {type(error).__name__}: {error}"
        return None


def _constant_changes(kernel: Kernel, count: int) -> Iterator[Option]:
    """Every way to set `count` constants to other values among their choices."""
    for chosen in combinations([c for c in kernel.constants if len(c.choices) > 1], count):
        for values in _values(chosen):
            words = ",".join(f"{name}={value}" for name, value in values.items())
            arm = "constant" if count == 1 else "constants"
            yield Option(f"{arm}:{words}", f"set {words}", lambda values=values: _set(kernel, values))


def _values(constants: tuple[Constant, ...]) -> Iterator[dict[str, int | float]]:
    if not constants:
        yield {}
        return
    first, *rest = constants
    for value in first.choices:
        if value != first.default:
            for others in _values(tuple(rest)):
                yield {first.name: value, **others}


def _set(kernel: Kernel, values: dict[str, int | float]) -> Kernel:
    constants = tuple(replace(c, default=values.get(c.name, c.default)) for c in kernel.constants)
    return replace(kernel, constants=constants)


def _edits(kernel: Kernel) -> Iterator[Option]:
    """Small changes without a reason: the verifier tells which of them hold."""
    for index, stmt in enumerate(walk(kernel.body)):
        if isinstance(stmt, Do):
            words = f"drop {stmt.call.name} (statement {index})"
            yield Option(f"edit:drop.{index}", words, lambda stmt=stmt: _dropped(kernel, stmt))
            words = f"move {stmt.call.name} (statement {index}) down"
            yield Option(f"edit:swap.{index}", words, lambda stmt=stmt: _swapped(kernel, stmt))
    for index, number in enumerate(_numbers(kernel.body)):
        for value in sorted({number.value * 2, number.value // 2, number.value + 8, number.value - 8}):
            if value > 0 and value != number.value:
                words = f"{number.value} (number {index}) becomes {value}"
                edit = lambda number=number, value=value: _nudged(kernel, number, value)  # noqa: E731
                yield Option(f"edit:number.{index}={value}", words, edit)


def _dropped(kernel: Kernel, target: Stmt) -> Kernel:
    def edit(value: Any) -> Any:
        if isinstance(value, tuple) and any(v is target for v in value) and len(value) > 1:
            return tuple(v for v in value if v is not target)
        return value

    return replace(kernel, body=_rebuilt(kernel.body, edit))


def _swapped(kernel: Kernel, target: Stmt) -> Kernel:
    def edit(value: Any) -> Any:
        if isinstance(value, tuple) and any(v is target for v in value[:-1]):
            at = next(i for i, v in enumerate(value) if v is target)
            return (*value[:at], value[at + 1], target, *value[at + 2 :])
        return value

    return replace(kernel, body=_rebuilt(kernel.body, edit))


def _nudged(kernel: Kernel, target: Int, number: int) -> Kernel:
    return replace(kernel, body=_rebuilt(kernel.body, lambda v: Int(number) if v is target else v))


def _numbers(value: Any) -> Iterator[Int]:
    """Every number above 1 in order of the text: 0 and 1 are rarely tunable."""
    if isinstance(value, Int):
        if value.value > 1:
            yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, Node):
        for field in fields(value):
            yield from _numbers(getattr(value, field.name))


def _rebuilt(value: Any, edit: Callable[[Any], Any]) -> Any:
    """`value` with `edit` applied to nodes and tuples, outer first; what it changes is not entered."""
    new = edit(value)
    if new is not value:
        return new
    if isinstance(value, tuple):
        return tuple(_rebuilt(item, edit) for item in value)
    if isinstance(value, Node):
        inner = {f.name: _rebuilt(getattr(value, f.name), edit) for f in fields(value) if f.name != "span"}
        return replace(value, **inner)
    return value
