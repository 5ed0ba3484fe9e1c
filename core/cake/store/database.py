"""Opens the database: settings of the connection, migration to this version's schema, errors in words."""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Engine, event
from sqlalchemy.exc import DatabaseError

from cake.errors import CakeError, MissingEnvironment

REVISION = "0001"
"""The schema that this version reads and writes: the newest file in `migrations/versions`."""

WRITES = "cake_writes"
"""Execution option of connections that write: they take SQLite's write lock at once.

A transaction that reads first and writes later could not wait for another writer: SQLite refuses it."""

_BUSY_MS = 30_000


def open_engine(path: Path) -> Engine:
    """The engine of the database at `path`, created and migrated where needed.

    Raises MissingEnvironment when the file cannot be read or written, CakeError when a newer cake wrote it.
    """
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"check_same_thread": False})
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    try:
        with words_for_errors(path):
            if _revision(engine) != REVISION:
                _migrate(engine, path)
    except OSError as error:
        raise MissingEnvironment(f"cannot use {path}: {error.strerror}; {_advice('readonly')}") from error
    return engine


def _set_up(connection: Any, record: object) -> None:
    # SQLAlchemy's events own the transactions: the driver's own handling would leave DDL outside of them.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    # FULL, not NORMAL: a verdict may have cost GPU time or money, and NORMAL may lose it with the power.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin(connection: sqlalchemy.Connection) -> None:
    kind = "IMMEDIATE" if connection.get_execution_options().get(WRITES) else "DEFERRED"
    connection.exec_driver_sql(f"BEGIN {kind}")


def _revision(engine: Engine) -> str | None:
    """The schema's revision, None for an empty database."""
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"
        ).first()
        if found is None:
            return None
        row = connection.exec_driver_sql("SELECT version_num FROM alembic_version").first()
        return str(row[0]) if row else None


def _migrate(engine: Engine, path: Path) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    # Two processes may open a fresh workspace at once: the second finds the work done.
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _revision(engine)
        if found is not None and found not in known:
            raise CakeError(
                f"{path} was written by a newer cake (schema {found}, this one knows up to {REVISION}); "
                "update cake, or move the file away to begin anew"
            )
        if found != REVISION:
            with engine.execution_options(**{WRITES: True}).begin() as connection:
                config.attributes["connection"] = connection
                command.upgrade(config, "head")


@contextmanager
def words_for_errors(path: Path) -> Iterator[None]:
    """Turns what SQLite and the file system say into one message for the user."""
    try:
        yield
    except (DatabaseError, sqlite3.DatabaseError) as error:
        reason = str(getattr(error, "orig", None) or error)
        raise MissingEnvironment(f"cannot use {path}: {reason}; {_advice(reason)}") from error


def _advice(reason: str) -> str:
    reason = reason.lower()
    if "full" in reason or "i/o error" in reason:
        return "is the disk full? What was recorded so far is safe: make room, then `cake resume`"
    if "readonly" in reason or "unable to open" in reason:
        return "is the disk read-only, or the folder owned by someone else?"
    if "locked" in reason:
        return "another process has held it for too long"
    if "not a database" in reason or "malformed" in reason:
        return "the file is damaged: move it away to begin anew"
    return "see the message before"
