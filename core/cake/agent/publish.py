"""Puts a session's winners and its record on the session's branch."""

from __future__ import annotations

from dataclasses import dataclass

from cake.evaluate.verdict import Timing
from cake.evolve.branch import Branch
from cake.history.record import dump, session_record
from cake.store.store import Entry, Store
from cake.store.tables import Commit, Session


@dataclass(frozen=True, slots=True)
class BranchPublisher:
    """Commits to `history/SESSION/`: the best kernel, and the session as JSON."""

    store: Store
    branch: Branch

    def winner(self, session: Session, entry: Entry, start: Entry) -> str:
        """Commit a new best kernel with the record up to it."""
        gain = f"{speedup(start, entry):.3f}x over the start ({_word(entry)})"
        subject = f"Evolve {session.task}: {gain}"
        where = ", ".join(f"{name}={value}" for name, value in session.dims.items())
        body = (
            f"{entry.candidate.move}\n\nJudged at {where} for {session.device} ({session.backend} backend)."
        )
        return self._publish(session, entry, "winner", subject, body)

    def record(self, session: Session, entry: Entry) -> str:
        """Commit the whole record once the session has ended, beside its best kernel."""
        return self._publish(session, entry, "record", f"Record the {session.task} session {session.id}", "")

    def _publish(self, session: Session, entry: Entry, kind: str, subject: str, body: str) -> str:
        folder = f"history/{session.id}"
        files = {
            f"{folder}/kernel.cake": entry.candidate.text,
            f"{folder}/session.json": dump(session_record(self.store, session.id)),
        }
        trailers = {
            "Session": session.id,
            "Candidate": entry.candidate.id,
            "Parent": entry.candidate.parent or "none",
            _word(entry).capitalize(): _seconds(entry),
            "Evidence": f"{folder}/session.json",
        }
        action = f"{entry.candidate.id}:{kind}"
        sha = self.branch.publish(action, files, subject, body, trailers)
        commit = Commit(
            action=action,
            session=session.id,
            candidate=entry.candidate.id,
            branch=self.branch.name,
            sha=sha,
        )
        self.store.add_commit(commit)
        return sha


def speedup(start: Entry, entry: Entry) -> float:
    """How many times faster than the start kernel, by the same clock (both are valid)."""
    return _timing(start).seconds / _timing(entry).seconds


def _timing(entry: Entry) -> Timing:
    timing = entry.verdict.timing if entry.verdict else None
    assert timing is not None, "only valid candidates are published"
    return timing


def _word(entry: Entry) -> str:
    return "measured" if entry.verdict and entry.verdict.measured else "predicted"


def _seconds(entry: Entry) -> str:
    timing = _timing(entry)
    return f"{timing.seconds:.4e} s [{timing.low:.4e}, {timing.high:.4e}] on {timing.device}"
