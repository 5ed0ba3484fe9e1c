"""The record of sessions. Every method is one transaction; writing the same action twice writes it once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, func
from sqlmodel import Session as Connection
from sqlmodel import SQLModel, col, select

from cake.errors import CakeError
from cake.evaluate.verdict import Timing
from cake.evaluate.verdict import Verdict as Judgement
from cake.evolve.ledger import signature
from cake.store.database import WRITES, open_engine, words_for_errors
from cake.store.tables import (
    Candidate,
    Commit,
    Event,
    Failure,
    Measurement,
    Prediction,
    Session,
    Sighting,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A candidate with its verdict, None while it waits for one."""

    candidate: Candidate
    verdict: Judgement | None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of failure, how many candidates died of it, and in how many lineages."""

    failure: Failure
    count: int
    lineages: int


class Store:
    """The database of one workspace. Raises MissingEnvironment where it cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine: Engine = open_engine(path)
        self._writer = self._engine.execution_options(**{WRITES: True})

    def close(self) -> None:
        """Release the file."""
        with words_for_errors(self.path):
            self._engine.dispose()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with words_for_errors(self.path), Connection(self._engine, expire_on_commit=False) as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with (
            words_for_errors(self.path),
            Connection(self._writer, expire_on_commit=False) as connection,
            connection.begin(),
        ):
            yield connection

    def _add_once(self, row: SQLModel, key: str) -> bool:
        """Write `row` unless its key is there; whether it was written."""
        with self._writing() as connection:
            return _once(connection, row, key)

    # --- writing ------------------------------------------------------------------------------------------

    def add_session(self, session: Session, start: Candidate) -> bool:
        """Record a session with its candidate 0; False where it is known."""
        with self._writing() as connection:
            return _once(connection, session, session.id) and _once(connection, start, start.id)

    def add_candidate(self, candidate: Candidate) -> bool:
        """Record a proposal; False where it is known."""
        return self._add_once(candidate, candidate.id)

    def add_verdict(self, candidate: str, verdict: Judgement) -> bool:
        """Record what the ladder said, with prediction, measurement and failure; False where it is known."""
        with self._writing() as connection:
            row = Verdict(
                candidate=candidate,
                ok=verdict.ok,
                stage=verdict.stage,
                code=verdict.code,
                line=verdict.line,
                seconds=verdict.seconds,
                detail=verdict.as_json(),
            )
            if not _once(connection, row, candidate):
                return False
            if verdict.predicted:
                connection.add(Prediction(candidate=candidate, **_timing(verdict.predicted)))
            if verdict.measured:
                connection.add(Measurement(candidate=candidate, **_timing(verdict.measured)))
            if not verdict.ok:
                _sight(connection, candidate, verdict)
            return True

    def add_commit(self, commit: Commit) -> bool:
        """Record a commit on the session's branch; False where it is known."""
        return self._add_once(commit, commit.action)

    def add_event(self, session: str, step: int, kind: str, detail: dict[str, Any], key: str = "") -> bool:
        """Record a decision; False where it is known. `key` tells apart events of a kind in one step."""
        action = f"{session}.{step:04d}:{kind}{key and ':'}{key}"
        event = Event(action=action, session=session, step=step, kind=kind, detail=detail)
        return self._add_once(event, action)

    def add_case(self, session: str, step: int, signature: str, detail: dict[str, Any]) -> bool:
        """Record, once a session, that a failure recurs; False where it is known."""
        action = f"{session}:case:{signature}"
        event = Event(action=action, session=session, step=step, kind="case", detail=detail)
        return self._add_once(event, action)

    def finish(self, session: str, reason: str) -> None:
        """Record why a session ended; the first reason stands."""
        with self._writing() as connection:
            row = connection.get_one(Session, session)
            row.reason = row.reason or reason
            connection.add(row)

    # --- reading ------------------------------------------------------------------------------------------

    def sessions(self) -> list[Session]:
        """All sessions, oldest first."""
        with self._reading() as connection:
            return list(connection.exec(select(Session).order_by(Session.created, Session.id)))

    def session(self, session: str) -> Session:
        """The session of that id, which exists."""
        with self._reading() as connection:
            return connection.get_one(Session, session)

    def candidate(self, candidate: str) -> Candidate | None:
        """The candidate of that id."""
        with self._reading() as connection:
            return connection.get(Candidate, candidate)

    def verdict(self, candidate: str) -> Judgement | None:
        """What the ladder said, None where it has not spoken."""
        with self._reading() as connection:
            row = connection.get(Verdict, candidate)
            return Judgement.from_json(row.detail) if row else None

    def entries(self, session: str, first: int = 0) -> list[Entry]:
        """The candidates of a session from step `first` on, in the order of their steps."""
        query = (
            select(Candidate, Verdict)
            .join(Verdict, isouter=True)
            .where(Candidate.session == session, Candidate.step >= first)
            .order_by(col(Candidate.step))
        )
        with self._reading() as connection:
            rows: Sequence[tuple[Candidate, Verdict | None]] = connection.exec(query).all()
        return [Entry(c, Judgement.from_json(v.detail) if v else None) for c, v in rows]

    def events(self, session: str) -> list[Event]:
        """The loop's decisions in the order of their steps."""
        query = select(Event).where(Event.session == session).order_by(col(Event.step), col(Event.action))
        with self._reading() as connection:
            return list(connection.exec(query))

    def commits(self, session: str) -> list[Commit]:
        """The commits of a session in the order of their candidates."""
        query = (
            select(Commit)
            .where(Commit.session == session)
            .order_by(
                col(Commit.candidate),
                col(Commit.action).desc(),  # a winner before the record of its session
            )
        )
        with self._reading() as connection:
            return list(connection.exec(query))

    def failures(self, session: str | None = None) -> list[Kind]:
        """The ledger, most frequent first: of one session, or of all."""
        count = func.count().label("count")
        query = (
            select(Failure, count, func.count(func.distinct(Sighting.lineage)))
            .join(Sighting)
            .group_by(col(Failure.signature))
            .order_by(count.desc(), col(Failure.signature))
        )
        if session is not None:
            query = query.join(Candidate, col(Sighting.candidate) == col(Candidate.id))
            query = query.where(Candidate.session == session)
        with self._reading() as connection:
            return [Kind(failure, n, lineages) for failure, n, lineages in connection.exec(query)]

    def find(self, prefix: str) -> Session | Candidate:
        """The session or candidate whose id begins so. Raises CakeError where there is none, or several."""
        sessions = select(Session).where(col(Session.id).startswith(prefix, autoescape=True))
        candidates = select(Candidate).where(col(Candidate.id).startswith(prefix, autoescape=True))
        with self._reading() as connection:
            exact = connection.get(Session, prefix) or connection.get(Candidate, prefix)
            if exact is not None:
                return exact
            found: list[Session | Candidate] = [*connection.exec(sessions)]
            found = found or [*connection.exec(candidates)]
        if not found or not prefix:
            raise CakeError(f"no session or candidate begins with {prefix!r}; `cake sessions` lists them")
        if len(found) > 1:
            names = ", ".join(row.id for row in found[:5])
            raise CakeError(f"{prefix!r} may mean {names}{', …' if len(found) > 5 else ''}; give more of it")
        return found[0]


def _once(connection: Connection, row: SQLModel, key: str) -> bool:
    if connection.get(type(row), key) is not None:
        return False
    connection.add(row)
    connection.flush()
    return True


def _timing(timing: Timing) -> dict[str, Any]:
    return {
        "device": timing.device,
        "seconds": timing.seconds,
        "low": timing.low,
        "high": timing.high,
        "detail": dict(timing.detail),
    }


def _sight(connection: Connection, candidate: str, verdict: Judgement) -> None:
    sign = signature(verdict)
    kind = Failure(signature=sign.id, **asdict(sign))
    _once(connection, kind, sign.id)
    lineage = connection.get_one(Candidate, candidate).lineage
    connection.add(Sighting(candidate=candidate, signature=sign.id, lineage=lineage))
