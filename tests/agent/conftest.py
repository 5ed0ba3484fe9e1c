"""A workspace of its own for each test, with a toy task that needs no compiler."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cake.workspace import Workspace, open_workspace

HERE = Path(__file__).parent


def git(folder: Path, *words: str) -> str:
    """Output of git, as a user with a name would run it."""
    command = ["git", "-c", "user.name=User", "-c", "user.email=user@example.org", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def make_workspace(folder: Path) -> Workspace:
    """A fresh git repository with the toy plugins, committed."""
    shutil.copytree(HERE / "toy", folder, ignore=shutil.ignore_patterns("__pycache__"))
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Begin")
    opened = open_workspace(folder)
    opened.prepare()
    return opened


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A toy workspace of this test's own."""
    return make_workspace(tmp_path / "toy")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A toy workspace that a module's tests share to look at, not to change."""
    return make_workspace(tmp_path_factory.mktemp("finished") / "toy")


@pytest.fixture(scope="session")
def toy() -> ModuleType:
    """The module `toy_session`."""
    spec = importlib.util.spec_from_file_location("toy_session", HERE / "toy_session.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["toy_session"] = module
    spec.loader.exec_module(module)
    return module
