"""`cake sessions`: what was evolved in this workspace."""

from __future__ import annotations

from typing import Annotated

import typer


def sessions(json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False) -> None:
    """List the sessions, oldest first: task, state, candidates, best and speed-up."""
    from cake.agent.session import sum_up
    from cake.cli.console import print_json, print_table
    from cake.cli.session_view import outcome
    from cake.store.store import Store
    from cake.workspace import open_workspace

    workspace = open_workspace()
    found = []
    if workspace.database.exists():
        store = Store(workspace.database)
        found = [sum_up(store, session.id) for session in store.sessions()]
    states = [
        s.session.reason or ("running" if workspace.running(s.session.id) else "interrupted") for s in found
    ]
    if json:
        documents = [{**s.as_json(), "state": state} for s, state in zip(found, states, strict=True)]
        print_json({"schema": 1, "sessions": documents})
        return
    if not found:
        typer.echo("no session yet; `cake evolve TASK` begins one", err=True)
        return
    rows = [
        (
            s.session.id,
            s.session.created[:16].replace("T", " "),
            s.session.task,
            s.session.arch,
            s.session.backend,
            state,
            f"{max(0, len(s.entries) - 1)}/{s.session.candidates}",
            outcome(s.best) if s.best else "-",
            f"{s.speedup:.3f}x" if s.speedup else "-",
        )
        for s, state in zip(found, states, strict=True)
    ]
    columns = ("session", "begun", "task", "arch", "backend", "state", "candidates", "best", "speed-up")
    print_table(columns, rows)
