"""The commands about sessions, as a user calls them: messages, documents and exit statuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cake.agent.session import proceed
from cake.plugins import load
from cake.store.store import Store
from cake.store.tables import Session
from cake.workspace import Workspace

ON_TOY = ("--device", "Toy", "--proposer", "count")


def cake(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from cake.cli.app import main; main()", *words],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def begun(toy: ModuleType, workspace: Workspace, finish: bool = True) -> Session:
    """A session in the record, run to its end or not at all."""
    store, registry = Store(workspace.database), load(workspace.root)
    session: Session = toy.start(workspace, registry, store, toy.wish(6, 0))
    if finish:
        proceed(workspace, registry, store, session, toy.ToyEvaluator(), toy.fingerprint)
    store.close()
    return session


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("evolve", "summ", *ON_TOY), 2, "no task is called 'summ'; did you mean sum?"),
        (
            ("evolve", "sum", *ON_TOY, "--arch", "sm_999"),
            2,
            "unknown architecture 'sm_999'; cake knows sm_80",
        ),
        (("evolve", "sum", "--device", "B9"), 2, "no device is called 'B9'"),
        (("evolve", "sum", *ON_TOY, "--dim", "N"), 2, "expected NAME=INTEGER"),
        (("evolve", "sum", *ON_TOY, "--shape", "huge"), 2, "it has small, large"),
        (("evolve", "sum", *ON_TOY, "--backend", "tpu"), 2, "machine"),
        (("show", "0"), 2, "no session yet"),
        (("resume", "0"), 2, "no session yet"),
    ],
)
def test_bad_input_is_one_message(
    words: tuple[str, ...], status: int, message: str, workspace: Workspace
) -> None:
    done = cake(workspace.root, *words)
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_outside_of_git(workspace: Workspace, tmp_path: Path) -> None:
    shutil.rmtree(workspace.root / ".git")
    done = cake(workspace.root, "evolve", "sum", *ON_TOY, env={"GIT_CEILING_DIRECTORIES": str(tmp_path)})
    assert done.returncode == 3
    assert "in no git repository" in done.stderr


def test_without_the_git_program(workspace: Workspace, tmp_path: Path) -> None:
    done = cake(workspace.root, "evolve", "sum", *ON_TOY, env={"PATH": str(tmp_path)})
    assert done.returncode == 3
    assert "git is not installed" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_session_is_listed_and_shown(toy: ModuleType, workspace: Workspace) -> None:
    session = begun(toy, workspace)
    listed = cake(workspace.root, "sessions")
    assert session.id in listed.stdout
    assert "budget" in listed.stdout
    assert "6/6" in listed.stdout
    shown = cake(workspace.root, "show", session.id[:6])
    assert "predicted speed-up over the start" in shown.stdout
    assert f"{session.id}.0006" in shown.stdout
    document = json.loads(cake(workspace.root, "show", session.id, "--json").stdout)
    assert len(document["candidates"]) == 7
    candidate = cake(workspace.root, "show", f"{session.id}.0000")
    assert "0,0,0" in candidate.stdout
    document = json.loads(cake(workspace.root, "show", f"{session.id}.0001", "--json").stdout)
    assert document["verdict"]["ok"] in (True, False)


def test_a_finished_session_cannot_be_resumed_and_says_so(toy: ModuleType, workspace: Workspace) -> None:
    session = begun(toy, workspace)
    done = cake(workspace.root, "resume", session.id, "--json")
    assert done.returncode == 0
    assert "has ended (budget)" in done.stderr
    assert json.loads(done.stdout)["session"] == session.id


def test_a_running_session_cannot_be_resumed(toy: ModuleType, workspace: Workspace) -> None:
    session = begun(toy, workspace, finish=False)
    with workspace.hold(session.id):
        done = cake(workspace.root, "resume", session.id)
        listed = cake(workspace.root, "sessions")
    assert done.returncode == 2
    assert "is running" in done.stderr
    assert "running" in listed.stdout
    assert "interrupted" in cake(workspace.root, "sessions").stdout


def test_a_task_whose_start_kernel_is_refused(workspace: Workspace) -> None:
    done = cake(workspace.root, "evolve", "sum", *ON_TOY, "--json", "--candidates", "3")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert document["best"] is None
    assert document["failures_by_stage"] == {"parse": 1}
    assert document["state"] == "start"
