"""`cake plugins`: what is loaded, from where, by whom."""

from __future__ import annotations

import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from cake.cli.console import print_json, print_table
from cake.errors import ExitCode
from cake.plugins import KINDS, PluginRecord, load


def plugins(
    kind: Annotated[str | None, typer.Option(help=f"Only this kind: {', '.join(KINDS)}.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """List every plugin: kind, name, origin, author, commit, state.

    A broken plugin is listed with the place and the reason, and the exit status is 4.
    """
    if kind is not None and kind not in KINDS:
        raise typer.BadParameter(f"unknown kind {kind}; known: {', '.join(KINDS)}", param_hint="--kind")
    registry = load()
    records = [record for record in registry.plugins if kind in (None, record.kind)]
    records = with_history(records, registry.root)
    if json:
        print_json({"schema": 1, "root": registry.root, "plugins": [asdict(record) for record in records]})
    else:
        print_table(
            ("kind", "name", "origin", "author", "commit", "state"),
            [(r.kind, r.name, r.origin, r.author, r.commit[:10], _state(r)) for r in records],
        )
    if any(record.error for record in records):
        raise typer.Exit(ExitCode.INTERNAL)


def _state(record: PluginRecord) -> str:
    return f"broken: {record.path}:{record.line}: {record.error}" if record.error else "ok"


def with_history(records: list[PluginRecord], root: Path) -> list[PluginRecord]:
    """The records with author and id of the last commit of each file; blank where git does not know it."""
    known = _last_commits(root)
    return [
        replace(record, author=known[record.path][0], commit=known[record.path][1])
        if record.path in known
        else record
        for record in records
    ]


def _last_commits(root: Path) -> dict[str, tuple[str, str]]:
    """Path below `root` -> (author, commit), from one reading of the log, newest first."""
    command = ["git", "-C", str(root), "log", "--format=%x00%H%x09%an", "--name-only", "--relative", "--"]
    folders = [kind.folder for kind in KINDS.values()]
    try:
        log = subprocess.run([*command, *folders], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    known: dict[str, tuple[str, str]] = {}
    for entry in log.stdout.split("\0")[1:]:
        head, *paths = entry.splitlines()
        commit, _, author = head.partition("\t")
        for path in paths:
            if path:
                known.setdefault(path, (author, commit))
    return known
