"""The search proposer: deterministic, never twice the same, learns what pays, outlives broken tactics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cake.ir import Kernel, parse, print_kernel
from cake.kinds.proposer import Past, Proposal, Proposer, Request
from cake.kinds.tactic import Move, Report, Tactic
from cake.plugins import Registry

KERNEL = """@kernel(arch="sm_80")
def copy(x: Global[f32, M, N], y: GlobalOut[f32, M, N], *, WARPS: choice(1, 2, 4)=2, VEC: choice(1, 4)=4):
    grid(M)
    with role("row", warps=WARPS):
        v = load(x[block, :], vector=VEC)
        cta_sync()
        store(y[block, :], v, vector=VEC)
"""


class Rename(Tactic):
    """A tactic that always finds something: it renames the kernel."""

    symptoms = frozenset({"tail_wave"})

    def sites(self, kernel: Kernel, report: Report) -> Iterator[Move]:
        for number in range(20):
            yield Move(f"to_{number}", f"call it copy_{number}")

    def apply(self, kernel: Kernel, move: Move) -> Kernel:
        return replace(kernel, name=f"copy_{move.key}")


class Faulty(Tactic):
    """A tactic that raises."""

    symptoms = frozenset({"tail_wave"})

    def sites(self, kernel: Kernel, report: Report) -> Iterator[Move]:
        raise ZeroDivisionError("by zero")

    def apply(self, kernel: Kernel, move: Move) -> Kernel:
        raise AssertionError


class FaultyHalfway(Rename):
    """A tactic that offers what it cannot do."""

    def apply(self, kernel: Kernel, move: Move) -> Kernel:
        raise IndexError("no such stage")


@pytest.fixture
def search(registry: Registry) -> Proposer:
    return registry.proposers["search"]


def past(step: int, text: str, move: str, score: float | None, parent: str = "s.0000") -> Past:
    return Past(f"s.{step:04d}", parent, text, move, "time", "", score, ("tail_wave",))


START = past(0, KERNEL, "start", 1.0, "")


def ask(search: Proposer, history: list[Past], seed: int, **tactics: Tactic) -> Proposal | None:
    registry = SimpleNamespace(tactics=tactics)
    request = Request(history[0], tuple(history), {"M": 8, "N": 64}, "sm_80", seed, registry)
    return search.propose(request)


def run(search: Proposer, steps: int, **tactics: Tactic) -> list[Past]:
    """A session from one parent in which only the tactics pay."""
    history = [START]
    for step in range(1, steps):
        proposal = ask(search, history, step, **tactics)
        if proposal is None:
            break
        score = 0.8 if proposal.move.startswith("rename") else None
        history.append(past(step, proposal.text, proposal.move, score))
    return history[1:]


def test_proposals_parse_and_are_canonical(search: Proposer) -> None:
    for candidate in run(search, 30, rename=Rename()):
        assert print_kernel(parse(candidate.text)) == candidate.text


def test_the_same_seed_gives_the_same_proposal(search: Proposer) -> None:
    assert ask(search, [START], 7) == ask(search, [START], 7)
    assert len({getattr(ask(search, [START], seed), "text", "") for seed in range(20)}) > 1


def test_nothing_is_offered_twice_until_nothing_is_left(search: Proposer) -> None:
    found = run(search, 1000)
    assert len({p.text for p in found} | {KERNEL}) == len(found) + 1
    moves = {p.move for p in found}
    assert {"constant:WARPS=4", "constant:VEC=1", "constants:WARPS=1,VEC=1", "edit:drop.3"} <= moves
    assert len(found) < 200


def test_moves_that_pay_are_made_more_often(search: Proposer) -> None:
    arms = Counter(p.move.partition(":")[0] for p in run(search, 16, rename=Rename()))
    assert arms.most_common(1)[0][0] == "rename"


@pytest.mark.parametrize("tactic", [Faulty(), FaultyHalfway()])
def test_a_tactic_that_raises_does_not_stop_the_search(search: Proposer, tactic: Tactic) -> None:
    proposals = [ask(search, [START], seed, bad=tactic) for seed in range(10)]
    assert all(proposals)
    assert any("Error" in note for p in proposals if p for note in p.notes.values())


def test_a_parent_that_does_not_parse_has_no_children(search: Proposer) -> None:
    assert ask(search, [replace(START, text="def")], 0) is None


def test_golden_kernels_have_children(search: Proposer, root: Path) -> None:
    for path in sorted((root / "plugins/kernels").glob("*.cake")):
        start = replace(START, text=path.read_text(encoding="utf-8"))
        assert ask(search, [start], 0) is not None, path.name
