"""Commits a session's results on its own branch, in its own worktree.

The user's checkout, index and HEAD are never touched. A commit is made once per action: its message names
the action, and the branch is searched for it before committing, so that a process killed between committing
and recording the commit does not commit again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from cake.errors import MissingEnvironment
from cake.workspace import Workspace

NAME = "cake-agent"
EMAIL = "cake-agent@localhost"

_SETTINGS = (
    "core.hooksPath=/dev/null",  # the user's hooks guard the user's commits
    "commit.gpgSign=false",
    "gc.auto=0",
    "core.autocrlf=false",
    "advice.detachedHead=false",
)
_PATIENCE_S = 3.0
"""A git command orphaned by a killed session needs far less to end."""


class Branch:
    """The branch `evolve/TASK/SESSION` and its worktree in `.cake/worktrees`, made at the first commit."""

    def __init__(self, workspace: Workspace, task: str, session: str, base: str) -> None:
        self.name = f"evolve/{task}/{session}"
        self.folder = workspace.worktrees / session
        self._base = base
        self._prefix = workspace.root.relative_to(workspace.repository)
        self._repository = workspace.repository
        self._ready = False

    def publish(
        self, action: str, files: Mapping[str, str], subject: str, body: str, trailers: Mapping[str, str]
    ) -> str:
        """Commit `files` (texts by path relative to the workspace); the commit's hash.

        A commit of the same action is found and not made again. Raises MissingEnvironment where git cannot.
        """
        self._open()
        found = self._find(action)
        if found:
            return found
        self._write(files)
        lines = [f"{key}: {' '.join(value.split())}" for key, value in {**trailers, "Action": action}.items()]
        message = "\n\n".join(part for part in (subject, body, "\n".join(lines)) if part)
        self._inside("add", "--force", "--", *(str(self._prefix / path) for path in files))
        self._inside("commit", "--quiet", "--no-verify", "--allow-empty", "-m", message)
        return self._inside("rev-parse", "HEAD")

    def close(self) -> None:
        """Remove the worktree: the branch holds everything, and can now be checked out elsewhere."""
        if self._registered():
            self._outside("worktree", "remove", "--force", str(self.folder))
        self._ready = False

    # --- the worktree -------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._ready:
            return
        if not self._usable():
            self._discard()
            if self._tip():
                self._outside("worktree", "add", "--quiet", str(self.folder), self.name)
            else:
                self._outside("worktree", "add", "--quiet", "-b", self.name, str(self.folder), self._base)
        self._ready = True

    def _usable(self) -> bool:
        """Whether the worktree is whole and on its branch; what a killed process left in it is undone."""
        if not self._registered() or not (self.folder / ".git").is_file():
            return False
        if self._inside("symbolic-ref", "--quiet", "HEAD", check=False) != f"refs/heads/{self.name}":
            return False
        self._free_index()
        self._inside("reset", "--quiet", "--hard", "HEAD")
        return True

    def _discard(self) -> None:
        """Forget the remains of a worktree whose making was cut short."""
        if self._registered():
            self._outside("worktree", "remove", "--force", "--force", str(self.folder), check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._outside("worktree", "prune")

    def _registered(self) -> bool:
        listed = self._outside("worktree", "list", "--porcelain", "-z")
        return f"worktree {self.folder}" in listed.split("\0")

    def _free_index(self) -> None:
        """Remove the index lock of a git command that died with an earlier run of this session.

        Only the session's owner works in this worktree, so after a while nobody can be holding the lock.
        """
        lock = Path(self._inside("rev-parse", "--absolute-git-dir")) / "index.lock"
        deadline = time.monotonic() + _PATIENCE_S
        while lock.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        lock.unlink(missing_ok=True)

    # --- the branch ---------------------------------------------------------------------------------------

    def _tip(self) -> str:
        return self._outside("rev-parse", "--verify", "--quiet", f"refs/heads/{self.name}", check=False)

    def _find(self, action: str) -> str:
        layout = "--format=%H %(trailers:key=Action,valueonly,separator=%x20)"
        for line in self._inside("log", layout, f"{self._base}..HEAD").splitlines():
            sha, _, actions = line.partition(" ")
            if action in actions.split():
                return sha
        return ""

    def _write(self, files: Mapping[str, str]) -> None:
        for path, text in files.items():
            file = self.folder / self._prefix / path
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8", newline="\n")
            except OSError as error:
                raise MissingEnvironment(
                    f"cannot write {file}: {error.strerror}; make room, then resume the session"
                ) from error

    # --- git ----------------------------------------------------------------------------------------------

    def _inside(self, *arguments: str, check: bool = True) -> str:
        return self._git(("-C", str(self.folder), *arguments), check)

    def _outside(self, *arguments: str, check: bool = True) -> str:
        return self._git(arguments, check)

    def _git(self, arguments: tuple[str, ...], check: bool) -> str:
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        command = ["git", *settings, *arguments]
        try:
            done = subprocess.run(
                command,
                cwd=self._repository,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                check=False,
            )
        except OSError as error:
            raise MissingEnvironment(f"cannot run git: {error.strerror}") from error
        if check and done.returncode != 0:
            raise _in_words(arguments, done.stderr, self.name)
        return done.stdout.rstrip("\n") if done.returncode == 0 else ""


def _environment() -> dict[str, str]:
    who = {"NAME": NAME, "EMAIL": EMAIL}
    identity = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
    # Git sets these while it runs hooks: they would point our commands at the user's index.
    theirs = {"GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_PREFIX"}
    kept = {name: value for name, value in os.environ.items() if name not in theirs}
    return {**kept, **identity, "LC_ALL": "C", "GIT_LFS_SKIP_SMUDGE": "1", "GIT_TERMINAL_PROMPT": "0"}


def _in_words(arguments: tuple[str, ...], said: str, branch: str) -> MissingEnvironment:
    said = " ".join(said.split()) or "no reason given"
    if ".lock" in said and ("exists" in said.lower() or "lock" in said.lower()):
        advice = "a git command left its lock behind; if none is running, remove that file and resume"
    elif "no space" in said.lower() or "read-only" in said.lower() or "permission" in said.lower():
        advice = "make the disk writable and resume"
    else:
        advice = "mend that and resume; nothing is lost"
    command = next((word for word in arguments if not word.startswith(("-", "/"))), "git")
    return MissingEnvironment(f"git {command} failed on branch {branch}: {said}; {advice}")
