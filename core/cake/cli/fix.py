"""`cake check --fix`: make the edits that rules offer, as long as they mend and break nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path

from cake.diagnostics import Diagnostic, apply
from cake.errors import MissingEnvironment

ROUNDS = 8
"""One mend may uncover the next fault."""

Judge = Callable[[str], Sequence[Diagnostic]]


def mended(text: str, judge: Judge) -> tuple[str, list[Diagnostic]]:
    """The text after all fixes that leave it with fewer errors and with none that was not there, and the
    diagnostics that were fixed."""
    done: list[Diagnostic] = []
    said = judge(text)
    for _ in range(ROUNDS):
        offered = [d for d in said if d.fix]
        if not offered:
            break
        tried = apply(text, [edit for d in offered for edit in d.fix])
        now = judge(tried)
        before, after = _errors(said), _errors(now)
        # A shape behind the first fault may show another one: what counts is that this code is gone or less.
        gone = all(after.count(d.code) < before.count(d.code) for d in offered)
        if tried == text or not gone or any(code.startswith(("syntax/", "type/")) for code in after):
            break
        text, said = tried, now
        done += offered
    return text, done


def _errors(diagnostics: Sequence[Diagnostic]) -> list[str]:
    return [d.code for d in diagnostics if d.severity == "error"]


def difference(path: str, before: str, after: str) -> str:
    """A unified diff."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return "".join(unified_diff(old, new, fromfile=path, tofile=path)).rstrip("\n")


def replace_file(path: Path, text: str) -> None:
    """Write the file as a whole or not at all, with the mode it had. Raises MissingEnvironment."""
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = file.name
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, path.stat().st_mode)
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
        raise MissingEnvironment(f"cannot write {path}: {error.strerror}; the file is as it was") from error
