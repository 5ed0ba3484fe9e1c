"""The tables. Identifiers are deterministic within a session, so that doing a step twice writes it once.

A session has a random id; its candidates are `SESSION.STEP`, step 0 being the start kernel. Times are
seconds unless said otherwise. Every change here needs a migration in `migrations/versions`.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, UniqueConstraint
from sqlmodel import Field, SQLModel


class Session(SQLModel, table=True):
    """One run of `cake evolve`: what was asked, from which commit, and how it ended (`reason`)."""

    id: str = Field(primary_key=True)
    created: str
    task: str
    arch: str
    device: str
    backend: str
    proposer: str
    shape: str
    dims: dict[str, int] = Field(sa_type=JSON)
    seed: int
    candidates: int
    seconds: float | None = None
    base: str
    version: str
    start: str
    reason: str = ""


class Candidate(SQLModel, table=True):
    """A proposal: kernel text, where it came from, and its content hash (unique in a session)."""

    __table_args__ = (UniqueConstraint("session", "step"), UniqueConstraint("session", "hash"))

    id: str = Field(primary_key=True)
    session: str = Field(foreign_key="session.id", index=True)
    step: int
    parent: str | None = Field(default=None, foreign_key="candidate.id")
    generation: int
    lineage: str
    proposer: str
    move: str
    notes: dict[str, str] = Field(sa_type=JSON)
    text: str
    hash: str


class Verdict(SQLModel, table=True):
    """What the ladder said; `detail` is the verdict as `cake.evaluate.verdict` writes it."""

    candidate: str = Field(primary_key=True, foreign_key="candidate.id")
    ok: bool
    stage: str
    code: str
    line: int
    seconds: float
    detail: dict[str, Any] = Field(sa_type=JSON)


class Prediction(SQLModel, table=True):
    """What the cost model said of a candidate, in seconds a launch."""

    candidate: str = Field(primary_key=True, foreign_key="candidate.id")
    device: str
    seconds: float
    low: float
    high: float
    detail: dict[str, Any] = Field(sa_type=JSON)


class Measurement(SQLModel, table=True):
    """What a GPU said of a candidate, in seconds a launch: median and interval."""

    candidate: str = Field(primary_key=True, foreign_key="candidate.id")
    device: str
    seconds: float
    low: float
    high: float
    detail: dict[str, Any] = Field(sa_type=JSON)


class Failure(SQLModel, table=True):
    """A kind of failure, named by its signature."""

    signature: str = Field(primary_key=True)
    stage: str
    code: str
    primitive: str
    cause: str


class Sighting(SQLModel, table=True):
    """A candidate failed in a known way. Counts and lineages are queries over these rows, never counters."""

    candidate: str = Field(primary_key=True, foreign_key="candidate.id")
    signature: str = Field(foreign_key="failure.signature", index=True)
    lineage: str


class Commit(SQLModel, table=True):
    """A commit on the session's branch, by the action that made it."""

    action: str = Field(primary_key=True)
    session: str = Field(foreign_key="session.id", index=True)
    candidate: str = Field(foreign_key="candidate.id")
    branch: str
    sha: str


class Event(SQLModel, table=True):
    """A decision of the loop (parent chosen, duplicate dropped, case opened), by its action."""

    action: str = Field(primary_key=True)
    session: str = Field(foreign_key="session.id", index=True)
    step: int
    kind: str
    detail: dict[str, Any] = Field(sa_type=JSON)
