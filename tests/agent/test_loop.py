"""The loop: budget, determinism, duplicates, the ledger's cases and what a session leaves in git."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from cake.agent.session import proceed, sum_up
from cake.errors import BrokenPlugin, CakeError, MissingEnvironment
from cake.kinds.proposer import Proposal, Request
from cake.plugins import Registry, load
from cake.store.store import Store
from cake.store.tables import Session
from cake.workspace import Workspace


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def registry(workspace: Workspace) -> Registry:
    return load(workspace.root)


@pytest.fixture
def store(workspace: Workspace) -> Store:
    return Store(workspace.database)


class Runs:
    """Runs toy sessions in one workspace."""

    def __init__(self, toy: ModuleType, workspace: Workspace, registry: Registry, store: Store) -> None:
        self.toy, self.workspace, self.registry, self.store = toy, workspace, registry, store
        self.evaluator = toy.ToyEvaluator()

    def new(self, candidates: int = 12, seed: int = 0, **given: object) -> Session:
        return self.toy.start(
            self.workspace, self.registry, self.store, self.toy.wish(candidates, seed, **given)
        )

    def go(self, session: Session) -> str:
        return proceed(
            self.workspace, self.registry, self.store, session, self.evaluator, self.toy.fingerprint
        )

    def table(self, session: Session) -> list[tuple[object, ...]]:
        return self.toy.table(self.store, session.id)


@pytest.fixture
def runs(toy: ModuleType, workspace: Workspace, registry: Registry, store: Store) -> Runs:
    return Runs(toy, workspace, registry, store)


def test_a_session_judges_its_budget_and_gets_faster(runs: Runs) -> None:
    session = runs.new(12)
    assert runs.go(session) == "budget"
    summary = sum_up(runs.store, session.id)
    assert len(summary.entries) == 13
    assert all(entry.verdict for entry in summary.entries)
    assert summary.best is not None
    assert summary.speedup is not None
    assert summary.speedup > 2
    assert summary.as_json()["predicted_speedup"] == summary.speedup
    assert runs.store.session(session.id).reason == "budget"


def test_the_same_seed_gives_the_same_table(runs: Runs) -> None:
    first, second, other = runs.new(seed=3), runs.new(seed=3), runs.new(seed=4)
    for session in (first, second, other):
        runs.go(session)
    assert runs.table(first) == runs.table(second)
    assert runs.table(first) != runs.table(other)


def test_no_text_is_judged_twice(runs: Runs) -> None:
    session = runs.new(25)
    runs.go(session)
    assert len(set(runs.evaluator.judged)) == len(runs.evaluator.judged)
    assert any(event.kind == "duplicate" for event in runs.store.events(session.id))


def test_failures_are_counted_by_stage_and_code_and_recur_as_cases(runs: Runs) -> None:
    (runs.workspace.root / "plugins/kernels/sum.cake").write_text("3,3,3\n")
    session = runs.new(12)
    runs.go(session)
    document = sum_up(runs.store, session.id).as_json()
    assert document["failures_by_stage"]["machine"] >= 3
    cases = [event for event in runs.store.events(session.id) if event.kind == "case"]
    assert [case.detail["code"] for case in cases] == ["toy/large"]


def test_a_proposer_with_nothing_to_offer_ends_the_session(runs: Runs) -> None:
    (runs.workspace.root / "plugins/kernels/sum.cake").write_text("3\n")
    session = runs.new(40)
    assert runs.go(session) == "exhausted"
    assert len(runs.store.entries(session.id)) < 10


def test_a_start_kernel_that_fails_ends_the_session(runs: Runs) -> None:
    (runs.workspace.root / "plugins/kernels/sum.cake").write_text("9,9\n")
    session = runs.new()
    assert runs.go(session) == "start"
    assert sum_up(runs.store, session.id).best is None


def test_judging_time_ends_the_session(runs: Runs) -> None:
    session = runs.new(40, seconds=2.0)
    assert runs.go(session) == "seconds"
    assert len(runs.store.entries(session.id)) == 4


def test_a_proposer_that_raises_is_named_and_the_session_goes_on_later(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = runs.new(5)

    def broken(request: Request) -> Proposal | None:
        raise ZeroDivisionError("by zero")

    with monkeypatch.context() as patch:
        patch.setattr(runs.registry.proposers["count"], "propose", broken)
        with pytest.raises(BrokenPlugin, match="count failed: ZeroDivisionError"):
            runs.go(session)
    assert runs.go(session) == "budget"


def test_winners_are_commits_on_a_branch_of_their_own(runs: Runs) -> None:
    session = runs.new(12)
    runs.go(session)
    root = runs.workspace.root
    branch = f"evolve/sum/{session.id}"
    log = git(root, "log", "--format=%an %(trailers:key=Candidate,valueonly)", f"main..{branch}").split(
        "\n\n"
    )
    summary = sum_up(runs.store, session.id)
    assert summary.best is not None
    assert len(log) == len(runs.store.commits(session.id)) >= 2
    assert all(line.startswith("cake-agent") for line in log if line)
    assert (
        git(root, "show", f"{branch}:history/{session.id}/kernel.cake") + "\n" == summary.best.candidate.text
    )
    record = json.loads(git(root, "show", f"{branch}:history/{session.id}/session.json"))
    assert [c["text"] for c in record["candidates"]] == [e.candidate.text for e in summary.entries]
    assert all(c["verdict"] for c in record["candidates"])
    trailers = git(root, "log", "-1", "--format=%(trailers:only)", branch)
    for key in ("Session", "Candidate", "Parent", "Predicted", "Evidence", "Action"):
        assert f"{key}: " in trailers
    assert git(root, "worktree", "list").count("\n") == 0


def test_the_users_checkout_index_and_head_are_not_touched(runs: Runs) -> None:
    root = runs.workspace.root
    (root / "staged.txt").write_text("staged")
    git(root, "add", "staged.txt")
    (root / "plugins/kernels/sum.cake").write_text("0,1,0\n")
    (root / "untracked.txt").write_text("untracked")

    def state() -> tuple[str, ...]:
        return (
            git(root, "status", "--porcelain=v2", "--branch"),
            git(root, "diff"),
            git(root, "diff", "--cached"),
            git(root, "symbolic-ref", "HEAD"),
            git(root, "rev-parse", "HEAD"),
        )

    before = state()
    session = runs.new(12)
    runs.go(session)
    assert state() == before
    assert runs.store.commits(session.id)


def test_hooks_and_identity_of_the_user_play_no_part(runs: Runs) -> None:
    root = runs.workspace.root
    hook = root / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    session = runs.new(12)
    assert runs.go(session) == "budget"
    assert runs.store.commits(session.id)


def test_checkpoints_are_pruned(runs: Runs) -> None:
    session = runs.new(12)
    runs.go(session)
    with sqlite3.connect(runs.workspace.checkpoints) as connection:
        [kept] = connection.execute("SELECT count(*) FROM checkpoints").fetchone()
        [writes] = connection.execute(
            "SELECT count(*) FROM writes WHERE checkpoint_id NOT IN (SELECT checkpoint_id FROM checkpoints)"
        ).fetchone()
    connection.close()
    assert 1 <= kept <= 4
    assert writes == 0


def test_without_checkpoints_the_store_suffices_to_go_on(runs: Runs) -> None:
    whole = runs.new(12)
    runs.go(whole)
    session = runs.new(12)

    class Enough(Exception):
        pass

    judge = runs.evaluator.evaluate
    left = iter(range(6))

    def until_enough(text: str, beat: float | None) -> object:
        if next(left, None) is None:
            raise Enough
        return judge(text, beat)

    runs.evaluator.evaluate = until_enough
    with pytest.raises(Enough):
        runs.go(session)
    runs.evaluator.evaluate = judge
    for path in runs.workspace.state.glob("checkpoints.db*"):
        path.unlink()
    runs.go(session)
    assert runs.table(session) == runs.table(whole)


def test_a_running_session_cannot_be_run_twice(runs: Runs) -> None:
    session = runs.new(2)
    with runs.workspace.hold(session.id):
        assert runs.workspace.running(session.id)
        with pytest.raises(CakeError, match=r"is running \(process \d+\)"):
            runs.go(session)
    assert not runs.workspace.running(session.id)


def test_a_lock_that_git_left_in_the_repository_is_named(runs: Runs) -> None:
    session = runs.new(12)
    lock = runs.workspace.root / f".git/refs/heads/evolve/sum/{session.id}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    with pytest.raises(MissingEnvironment, match=r"\.lock.*remove that file"):
        runs.go(session)
    lock.unlink()
    assert runs.go(session) == "budget"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task": "summ"}, "did you mean sum"),
        ({"arch": "sm_999"}, "unknown architecture 'sm_999'; cake knows sm_80"),
        ({"arch": "sm_90"}, "no start kernel for sm_90; it has sm_80"),
        ({"device": "H2000"}, "no device is called"),
        ({"shape": "huge"}, "no shape 'huge'; it has small, large"),
        ({"dims": {"Q": 1}}, "no dimension 'Q'; it has N"),
        ({"dims": {"N": 0}}, "at least 1"),
        ({"proposer": "nobody"}, "no proposer is called"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_by_name(
    runs: Runs, given: dict[str, object], message: str
) -> None:
    with pytest.raises(CakeError, match=message):
        runs.new(**given)
    assert runs.store.sessions() == []
