"""What the commands about sessions share: opening the record, and tables for people."""

from __future__ import annotations

import sys
from typing import Any

from cake.agent.loop import Progress
from cake.agent.session import Summary
from cake.cli.console import print_table
from cake.errors import CakeError
from cake.store.store import Entry, Store
from cake.workspace import Workspace


def open_store(workspace: Workspace) -> Store:
    """The record of a workspace that has one. Raises CakeError before the first session."""
    if not workspace.database.exists():
        raise CakeError(f"no session yet in {workspace.root}; `cake evolve TASK` begins one")
    return Store(workspace.database)


def print_summary(summary: Summary) -> None:
    """Best, speed-up over the start, and failures by stage and code."""
    session = summary.session
    best = summary.best
    print(
        f"session {session.id}: {session.task} {dims_text(session.dims)} on {session.device} ({session.arch})"
    )
    if best is None:
        print(f"no valid kernel among {len(summary.entries)} candidates")
    else:
        how = "measured" if best.verdict and best.verdict.measured else "predicted"
        rows = [
            ("start", *_row(summary.entries[0])),
            ("best", *_row(best)),
        ]
        print_table(("", "candidate", "move", how, "interval"), rows)
        print(f"{how} speed-up over the start: {summary.speedup:.3f}x" if summary.speedup else "no speed-up")
        if best.candidate.step:
            print(f"winners are on branch evolve/{session.task}/{session.id}")
        else:
            print("nothing beat the start: no branch was made")
    if summary.failures:
        print_table(("failed at", "code", "candidates"), summary.failures)


def dims_text(dims: dict[str, int]) -> str:
    """`M=4096 N=4096`."""
    return " ".join(f"{name}={value}" for name, value in dims.items())


def seconds_text(seconds: float) -> str:
    """Seconds in the unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"


def outcome(entry: Entry) -> str:
    """What became of a candidate, in a few words."""
    verdict = entry.verdict
    if verdict is None:
        return "not judged yet"
    if verdict.timing is None:
        place = f" (line {verdict.line})" if verdict.line else ""
        return f"{verdict.stage}: {verdict.code}{place}"
    return seconds_text(verdict.timing.seconds)


def _row(entry: Entry) -> tuple[str, str, str, str]:
    timing = entry.verdict.timing if entry.verdict else None
    if timing is None:
        return (entry.candidate.id, entry.candidate.move, outcome(entry), "")
    interval = f"{seconds_text(timing.low)} … {seconds_text(timing.high)}"
    return (entry.candidate.id, entry.candidate.move, seconds_text(timing.seconds), interval)


class Display:
    """Live progress: a bar on a terminal, one line a candidate elsewhere (on standard error under --json)."""

    def __init__(self, candidates: int, done: int, quiet: bool) -> None:
        self._stream = sys.stderr if quiet else sys.stdout
        self._bar: Any = None
        if self._stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
            )
            self._bar = Progress(*columns, console=Console(file=self._stream))
            self._task = self._bar.add_task("judging the start kernel", total=candidates, completed=done)

    def __enter__(self) -> Display:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, progress: Progress) -> None:
        """Called after each judged candidate."""
        entry = progress.entry
        mark = "  new best" if progress.improved and progress.step else ""
        width = len(str(progress.candidates))
        line = (
            f"{progress.step:{width}}/{progress.candidates}  {entry.candidate.move}  {outcome(entry)}{mark}"
        )
        if self._bar is None:
            print(line, file=self._stream, flush=True)
            return
        if mark or not progress.step:
            self._bar.console.print(line, markup=False, highlight=False)
        self._bar.update(self._task, completed=progress.step, description=outcome(entry))
