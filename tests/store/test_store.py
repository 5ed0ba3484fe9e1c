"""The record of sessions: what goes in comes out, twice is once, and the schema migrates."""

from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path

import pytest

from cake.errors import CakeError, MissingEnvironment
from cake.evaluate.verdict import Step, Timing, Verdict
from cake.store.database import REVISION
from cake.store.store import Store
from cake.store.tables import Candidate, Commit, Session


def session(id: str = "5e55", **given: object) -> Session:
    fields = {
        "id": id,
        "created": "2026-01-01T00:00:00Z",
        "task": "gemm",
        "arch": "sm_90a",
        "device": "H200",
        "backend": "machine",
        "proposer": "search",
        "shape": "square",
        "dims": {"M": 4096},
        "seed": 0,
        "candidates": 4,
        "base": "0" * 40,
        "version": "0",
        "start": "plugins/kernels/gemm.cake",
    }
    return Session(**{**fields, **given})


def candidate(step: int, session: str = "5e55", **given: object) -> Candidate:
    id = f"{session}.{step:04d}"
    fields = {
        "id": id,
        "session": session,
        "step": step,
        "generation": min(step, 1),
        "lineage": id,
        "proposer": "search",
        "move": "",
        "notes": {},
        "text": f"kernel {step}",
        "hash": f"hash {step}",
    }
    return Candidate(**{**fields, **given})


GOOD = Verdict(
    ok=True,
    stage="time",
    steps=(Step("parse", 0.25), Step("time", 0.5)),
    symptoms=("tail_wave",),
    predicted=Timing(1e-3, 9e-4, 1.1e-3, "H200", {"bound": "tensor"}),
)
BAD = Verdict(
    ok=False,
    stage="machine",
    steps=(Step("parse", 0.25),),
    code="sync/unfenced-tma-store",
    message="shared tile is read before it is visible",
    line=7,
    primitive="tma_store",
    diagnostics=({"code": "sync/unfenced-tma-store"},),
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cake.db")


def test_what_is_written_is_read_back(store: Store) -> None:
    store.add_session(session(), candidate(0))
    for step, verdict in enumerate((GOOD, BAD)):
        store.add_candidate(candidate(step))
        store.add_verdict(f"5e55.{step:04d}", verdict)
    store.add_candidate(candidate(2))
    found = store.entries("5e55")
    assert [entry.verdict for entry in found] == [GOOD, BAD, None]
    assert [entry.candidate.text for entry in found] == ["kernel 0", "kernel 1", "kernel 2"]
    assert store.session("5e55").dims == {"M": 4096}
    assert GOOD.seconds == 0.75


def test_an_action_done_twice_is_recorded_once(store: Store) -> None:
    commit = {"session": "5e55", "candidate": "5e55.0000", "branch": "b", "sha": "c0"}
    for first in (True, False):
        assert store.add_session(session(), candidate(0)) is first
        assert store.add_candidate(candidate(1)) is first
        assert store.add_verdict("5e55.0000", BAD) is first
        assert store.add_event("5e55", 0, "parent", {}) is first
        assert store.add_commit(Commit(action="5e55.0000:winner", **commit)) is first
    assert [kind.count for kind in store.failures()] == [1]


def test_the_ledger_counts_candidates_and_lineages_by_signature(store: Store) -> None:
    store.add_session(session(), candidate(0, lineage="a"))
    for step, lineage in enumerate(("a", "a", "b")):
        store.add_candidate(candidate(step, lineage=lineage))
        store.add_verdict(f"5e55.{step:04d}", BAD)
    store.add_session(session("0ther"), candidate(0, "0ther", lineage="c"))
    store.add_verdict("0ther.0000", BAD)
    [here] = store.failures("5e55")
    [everywhere] = store.failures()
    assert (here.count, here.lineages) == (3, 2)
    assert (everywhere.count, everywhere.lineages) == (4, 3)
    assert here.failure.code == "sync/unfenced-tma-store"
    assert here.failure.cause == BAD.message


def test_a_verdict_needs_its_candidate(store: Store) -> None:
    with pytest.raises(MissingEnvironment, match="FOREIGN KEY"):
        store.add_verdict("nobody", GOOD)


def test_the_first_reason_of_an_end_stands(store: Store) -> None:
    store.add_session(session(), candidate(0))
    store.finish("5e55", "budget")
    store.finish("5e55", "exhausted")
    assert store.session("5e55").reason == "budget"


def test_a_prefix_finds_a_session_or_a_candidate(store: Store) -> None:
    for id in ("5e55", "5eed"):
        store.add_session(session(id), candidate(0, id))
    assert store.find("5e5").id == "5e55"
    assert store.find("5eed.").id == "5eed.0000"
    with pytest.raises(CakeError, match="may mean 5e55, 5eed"):
        store.find("5e")
    for unknown in ("", "%", "ffff"):
        with pytest.raises(CakeError, match=r"no session or candidate|may mean"):
            store.find(unknown)


def test_the_schema_is_the_tables_and_migrates_from_empty(store: Store, tmp_path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from sqlalchemy import create_engine
    from sqlmodel import SQLModel

    with create_engine(f"sqlite:///{store.path}").connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, SQLModel.metadata) == []
        assert context.get_current_revision() == REVISION


def test_settings_hold(store: Store) -> None:
    with store._engine.connect() as connection:
        asked = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
        }
    assert asked == {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 2, "busy_timeout": 30_000}


def test_a_newer_database_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "cake.db"
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(CakeError, match=r"newer cake .*9999"):
        Store(path)


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "cake.db"
    path.write_bytes(b"no database at all, but long enough to have a header" * 100)
    with pytest.raises(MissingEnvironment, match="move it away"):
        Store(path)


def open_once(path: str) -> None:
    Store(Path(path)).close()


def test_two_processes_may_open_a_fresh_workspace_at_once(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    path = str(tmp_path / "cake.db")
    both = [spawn.Process(target=open_once, args=(path,)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
