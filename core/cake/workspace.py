"""The workspace: a git repository with plugin folders, and its `.cake/` with database and worktrees."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cake.errors import CakeError, MissingEnvironment
from cake.plugins import find_workspace

if TYPE_CHECKING:
    import git


_LOCK_TRIES, _LOCK_PAUSE_S = 5, 0.01


@dataclass(frozen=True, slots=True)
class Workspace:
    """A folder with plugins inside the git repository `repository` (the same folder as a rule)."""

    root: Path
    repository: Path

    @property
    def state(self) -> Path:
        """What cake keeps and git ignores."""
        return self.root / ".cake"

    @property
    def database(self) -> Path:
        return self.state / "cake.db"

    @property
    def checkpoints(self) -> Path:
        return self.state / "checkpoints.db"

    @property
    def worktrees(self) -> Path:
        return self.state / "worktrees"

    def prepare(self) -> None:
        """Make `.cake/`, ignored by git whatever the repository ignores. Raises MissingEnvironment."""
        try:
            self.worktrees.mkdir(parents=True, exist_ok=True)
            ignore = self.state / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise MissingEnvironment(
                f"cannot write to {self.state}: {error.strerror}; cake keeps its record there: "
                "make the folder writable, or work in a clone on another disk"
            ) from error

    @contextmanager
    def hold(self, session: str) -> Iterator[None]:
        """Own a session until the block ends. Raises CakeError where another process runs it.

        The system lets go of the lock when the process dies, however it dies.
        """
        folder = self.state / "locks"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = (folder / session).open("a+", encoding="utf-8")
        except OSError as error:
            raise MissingEnvironment(f"cannot write to {folder}: {error.strerror}") from error
        with file:
            if not _lock(file.fileno()):
                file.seek(0)
                raise CakeError(f"session {session} is running (process {file.read().strip() or 'unknown'})")
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    def running(self, session: str) -> bool:
        """Whether some process holds the session now."""
        try:
            with (self.state / "locks" / session).open("r", encoding="utf-8") as file:
                return not _lock(file.fileno(), shared=True)
        except FileNotFoundError:
            return False


def open_workspace(start: Path | None = None) -> Workspace:
    """The workspace that holds `start` (the current folder).

    Raises CakeError where there is none, MissingEnvironment without git or without a commit to begin from.
    """
    here = (start or Path.cwd()).resolve()
    root = find_workspace(here)
    if root is None:
        raise CakeError(
            f"{here} is in no cake workspace: it needs plugins/ and rules/ folders in a git repository"
        )
    repository = open_repository(root)
    top = Path(str(repository.working_tree_dir))
    if not repository.head.is_valid():
        raise MissingEnvironment(
            f"the git repository {top} has no commit yet; commit something first: sessions begin from HEAD"
        )
    return Workspace(root, top)


def open_repository(folder: Path) -> git.Repo:
    """The git repository that holds `folder`. Raises MissingEnvironment without git or repository."""
    try:
        import git
    except ImportError as error:
        raise MissingEnvironment("git is not installed, or not on PATH; sessions commit with it") from error
    try:
        repository = git.Repo(folder, search_parent_directories=True)
    except (git.InvalidGitRepositoryError, git.NoSuchPathError):
        raise MissingEnvironment(
            f"{folder} is in no git repository; sessions commit their winners: run `git init` and commit"
        ) from None
    except git.GitError as error:
        raise MissingEnvironment(f"git cannot read the repository at {folder}: {error}") from error
    if repository.bare:
        raise MissingEnvironment(f"{repository.git_dir} is a bare git repository; run cake in a clone of it")
    return repository


def _lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock of an open file; False where another process has it."""
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_S)  # whoever only asks whether a session runs lets go at once
        else:
            return True
    return False
