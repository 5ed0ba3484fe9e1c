"""The workspace: found in a git repository, its state ignored by git, refused by name otherwise."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cake.errors import CakeError, MissingEnvironment
from cake.workspace import open_workspace


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=User", "-c", "user.email=user@example.org", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The plugin folders of a workspace, in no repository yet."""
    for name in ("plugins", "rules"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def repository(folder: Path) -> Path:
    git(folder, "init", "--quiet")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "Begin")
    return folder


def test_it_is_found_from_a_folder_inside(repository: Path) -> None:
    assert open_workspace(repository / "plugins").root == repository


def test_its_state_is_ignored_by_git(repository: Path) -> None:
    open_workspace(repository).prepare()
    assert (repository / ".cake").is_dir()
    assert git(repository, "status", "--porcelain") == ""


def test_a_workspace_may_be_a_part_of_the_repository(repository: Path) -> None:
    inner = repository / "kernels"
    for name in ("plugins", "rules"):
        (inner / name).mkdir(parents=True)
    opened = open_workspace(inner)
    assert (opened.root, opened.repository) == (inner, repository)


def test_no_workspace(tmp_path: Path) -> None:
    with pytest.raises(CakeError, match="in no cake workspace"):
        open_workspace(tmp_path)


def test_no_repository(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(folder.parent))
    with pytest.raises(MissingEnvironment, match=r"in no git repository; .* run `git init`"):
        open_workspace(folder)


def test_no_commit(folder: Path) -> None:
    git(folder, "init", "--quiet")
    with pytest.raises(MissingEnvironment, match="no commit yet"):
        open_workspace(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(repository: Path) -> None:
    repository.chmod(0o500)
    with pytest.raises(MissingEnvironment, match="cannot write to"):
        open_workspace(repository).prepare()


def test_a_file_in_the_place_of_the_state(repository: Path) -> None:
    (repository / ".cake").write_text("")
    with pytest.raises(MissingEnvironment, match="cannot write to"):
        open_workspace(repository).prepare()
