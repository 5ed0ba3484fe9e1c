"""Kill a session anywhere, go on, and find the same candidates, verdicts and commits as without the kill."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cake.agent.session import proceed
from cake.errors import MissingEnvironment
from cake.plugins import load
from cake.store.store import Store
from cake.store.tables import Commit
from cake.workspace import Workspace

PROGRAM = Path(__file__).parent / "toy_session.py"
CANDIDATES, SEED = 10, 5


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def spawn(workspace: Workspace, *words: str, pause: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(workspace.root), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **({"CAKE_TOY_PAUSE": "1"} if pause else {})},
        start_new_session=True,
        # A shell starts background jobs with SIGINT ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def read_until(process: subprocess.Popen[str], word: str) -> None:
    """Answer every pause until the child says `word`."""
    assert process.stdout is not None
    assert process.stdin is not None
    for line in process.stdout:
        if line.strip() == word:
            return
        if line.strip() == "judging":
            process.stdin.write("\n")
            process.stdin.flush()
    pytest.fail(f"the session ended before it said {word!r}")


def kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def session_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def store(workspace: Workspace) -> Store:
    return Store(workspace.database)


@pytest.fixture(scope="module")
def whole(toy: ModuleType, finished: Workspace) -> tuple[list[tuple[object, ...]], list[str]]:
    """Table and commits of the session that nobody kills."""
    registry, store = load(finished.root), Store(finished.database)
    session = toy.start(finished, registry, store, toy.wish(CANDIDATES, SEED))
    proceed(finished, registry, store, session, toy.ToyEvaluator(), toy.fingerprint)
    return toy.table(store, session.id), actions(finished, session.id)


def actions(workspace: Workspace, session: str) -> list[str]:
    """The actions committed on the session's branch, oldest first, without the session's name."""
    layout = "--format=%(trailers:key=Action,valueonly)"
    log = git(workspace.root, "log", "--reverse", layout, f"main..evolve/sum/{session}")
    return [line.partition(".")[2] for line in log.splitlines() if line]


def finish(workspace: Workspace, session: str) -> None:
    process = spawn(workspace, "resume", session)
    out, _ = process.communicate()
    assert process.returncode == 0, out


Whole = tuple[list[tuple[object, ...]], list[str]]


@pytest.mark.parametrize("step", [0, 1, 6, CANDIDATES])
def test_killed_while_judging(
    step: int, toy: ModuleType, workspace: Workspace, store: Store, whole: Whole
) -> None:
    process = spawn(workspace, "begin", str(CANDIDATES), str(SEED), pause=True)
    session = session_of(process)
    if step:
        read_until(process, f"judged {step - 1}")
    read_until(process, "judging")
    kill(process)
    assert [entry.candidate.step for entry in store.entries(session) if not entry.verdict] == [step]
    finish(workspace, session)
    assert (toy.table(store, session), actions(workspace, session)) == whole


def test_killed_again_and_again_wherever_it_is(
    toy: ModuleType, workspace: Workspace, store: Store, whole: Whole
) -> None:
    draw = random.Random(0)
    process = spawn(workspace, "begin", str(CANDIDATES), str(SEED))
    session = session_of(process)
    step = 0
    while step < CANDIDATES - 1:
        # Killed as soon as a step is seen to be judged: the child is then anywhere in what follows.
        read_until(process, f"judged {step}")
        kill(process)
        step = min(CANDIDATES - 1, step + draw.randint(2, 4))
        if step < CANDIDATES - 1:
            process = spawn(workspace, "resume", session)
    finish(workspace, session)
    assert (toy.table(store, session), actions(workspace, session)) == whole


class Killed(BaseException):
    """Stands for the end of the process at a place that no signal hits for sure."""


@pytest.mark.parametrize("method", ["add_candidate", "add_verdict", "add_commit", "add_event", "finish"])
@pytest.mark.parametrize("after", [False, True])
def test_cut_off_before_or_after_any_record(
    method: str,
    after: bool,
    toy: ModuleType,
    workspace: Workspace,
    store: Store,
    whole: Whole,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = load(workspace.root)
    session = toy.start(workspace, registry, store, toy.wish(CANDIDATES, SEED))
    genuine = getattr(Store, method)
    calls = iter(range(100))
    place = 0 if method == "finish" else 2

    def cut(self: Store, *given: object) -> object:
        if next(calls) != place:
            return genuine(self, *given)
        if after:
            genuine(self, *given)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Store, method, cut)
        with pytest.raises(Killed):
            proceed(workspace, registry, store, session, toy.ToyEvaluator(), toy.fingerprint)
    proceed(workspace, registry, store, session, toy.ToyEvaluator(), toy.fingerprint)
    assert (toy.table(store, session.id), actions(workspace, session.id)) == whole
    assert len(store.commits(session.id)) == len(whole[1])


def test_a_commit_that_was_made_but_not_recorded_is_found(
    toy: ModuleType, workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = load(workspace.root)
    session = toy.start(workspace, registry, store, toy.wish(CANDIDATES, SEED))

    def cut(self: Store, commit: Commit) -> bool:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Store, "add_commit", cut)
        with pytest.raises(Killed):
            proceed(workspace, registry, store, session, toy.ToyEvaluator(), toy.fingerprint)
    [first] = actions(workspace, session.id)
    proceed(workspace, registry, store, session, toy.ToyEvaluator(), toy.fingerprint)
    assert actions(workspace, session.id).count(first) == 1


@pytest.mark.parametrize("remains", ["empty folder", "folder without link", "half a checkout"])
def test_the_remains_of_a_worktree_do_no_harm(
    remains: str, toy: ModuleType, workspace: Workspace, store: Store, whole: Whole
) -> None:
    registry = load(workspace.root)
    session = toy.start(workspace, registry, store, toy.wish(CANDIDATES, SEED))
    folder = workspace.worktrees / session.id
    branch = f"evolve/sum/{session.id}"
    if remains == "half a checkout":
        git(workspace.root, "worktree", "add", "-b", branch, str(folder))
        (folder / "plugins/kernels/sum.cake").unlink()
        (workspace.root / f".git/worktrees/{session.id}/index.lock").touch()
    else:
        folder.mkdir()
        (folder / "plugins").write_text("not a folder")
        if remains == "folder without link":
            git(workspace.root, "branch", branch)
    proceed(workspace, registry, store, session, toy.ToyEvaluator(), toy.fingerprint)
    assert (toy.table(store, session.id), actions(workspace, session.id)) == whole


def test_two_sessions_at_once(toy: ModuleType, workspace: Workspace, store: Store, whole: Whole) -> None:
    both = [spawn(workspace, "begin", str(CANDIDATES), str(SEED)) for _ in range(2)]
    sessions = [session_of(process) for process in both]
    for process in both:
        out, _ = process.communicate()
        assert process.returncode == 0, out
    for session in sessions:
        assert (toy.table(store, session), actions(workspace, session)) == whole


def test_a_full_disk_is_said_and_the_session_goes_on_later(
    toy: ModuleType, workspace: Workspace, store: Store, whole: Whole
) -> None:
    import resource

    registry = load(workspace.root)
    session = toy.start(workspace, registry, store, toy.wish(CANDIDATES, SEED))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = workspace.database.with_name("cake.db-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50_000, hard))
    try:
        with pytest.raises(MissingEnvironment, match=r"cannot use .*: .*; is the disk full"):
            proceed(workspace, registry, store, session, toy.ToyEvaluator(), toy.fingerprint)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    proceed(workspace, registry, store, session, toy.ToyEvaluator(), toy.fingerprint)
    assert (toy.table(store, session.id), actions(workspace, session.id)) == whole


def test_interrupted_by_the_user(toy: ModuleType, workspace: Workspace, store: Store, whole: Whole) -> None:
    process = spawn(workspace, "begin", str(CANDIDATES), str(SEED), pause=True)
    session = session_of(process)
    read_until(process, "judged 3")
    read_until(process, "judging")
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode not in (0, -signal.SIGKILL)
    assert not workspace.running(session)
    finish(workspace, session)
    assert (toy.table(store, session), actions(workspace, session)) == whole
