"""`cake evolve` as a user calls it: real plugins, real judge, one document, commits, kill -9 and resume."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CAKE = (sys.executable, "-c", "from cake.cli.app import main; main()")
FOLDERS = ("plugins", "rules", "tactics", "calibrations")


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=User", "-c", "user.email=user@example.org", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A git repository with the plugins of this one."""
    folder = tmp_path_factory.mktemp("evolve") / "workspace"
    for name in FOLDERS:
        shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / name / ".keep").touch()
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Begin")
    return folder


def cake(folder: Path, *words: str) -> dict[str, object]:
    done = subprocess.run([*CAKE, *words, "--json"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


def table(folder: Path, session: object) -> list[tuple[object, ...]]:
    document = cake(folder, "show", str(session))
    candidates = document["candidates"]
    assert isinstance(candidates, list)
    return [
        (
            c["step"],
            (c["parent"] or "").partition(".")[2],
            c["move"],
            c["hash"],
            c["verdict"]["stage"],
            c["verdict"]["code"],
            (c["verdict"]["predicted"] or {}).get("seconds"),
        )
        for c in candidates
    ]


def test_gemm_gets_faster_and_the_winner_is_on_its_branch(workspace: Path) -> None:
    head, status = git(workspace, "rev-parse", "HEAD"), git(workspace, "status", "--porcelain")
    document = cake(workspace, "evolve", "gemm", "--candidates", "6", "--seed", "0")
    assert document["state"] == "budget"
    assert document["candidates"] == 6
    best, speedup = document["best"], document["predicted_speedup"]
    assert isinstance(best, dict)
    assert isinstance(speedup, float)
    assert speedup >= 1
    if best["step"]:
        kernel = git(workspace, "show", f"{best['branch']}:history/{document['session']}/kernel.cake")
        assert kernel.startswith("@kernel(")
    assert (git(workspace, "rev-parse", "HEAD"), git(workspace, "status", "--porcelain")) == (head, status)


def test_a_killed_session_resumes_to_what_it_would_have_been(workspace: Path) -> None:
    words = ("evolve", "rmsnorm", "--candidates", "8", "--seed", "1")
    whole = cake(workspace, *words)
    process = subprocess.Popen(
        [*CAKE, *words], cwd=workspace, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.split()[0] == "3/8":
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    sessions = cake(workspace, "sessions")["sessions"]
    assert isinstance(sessions, list)
    [killed] = [s["session"] for s in sessions if s["state"] == "interrupted"]
    assert cake(workspace, "resume", killed)["state"] == "budget"
    assert table(workspace, killed) == table(workspace, whole["session"])
