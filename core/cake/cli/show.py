"""`cake show`: one session or one candidate, from the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cake.store.store import Entry, Store
    from cake.store.tables import Candidate, Session


def show(
    id: Annotated[str, typer.Argument(help="A session or candidate id, or its beginning.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show a session with its candidates, or a candidate with its verdict and text."""
    from cake.cli.session_view import open_store
    from cake.store.tables import Session
    from cake.workspace import open_workspace

    store = open_store(open_workspace())
    found = store.find(id)
    if isinstance(found, Session):
        _show_session(store, found, json)
    else:
        _show_candidate(store, found, json)


def _show_session(store: Store, session: Session, json: bool) -> None:
    from cake.agent.session import sum_up
    from cake.cli.console import print_json, print_table
    from cake.cli.session_view import outcome, print_summary
    from cake.history.record import session_record

    if json:
        print_json(session_record(store, session.id))
        return
    summary = sum_up(store, session.id)
    print_summary(summary)
    rows = [
        (e.candidate.id, (e.candidate.parent or "-").rpartition(".")[2], e.candidate.move, outcome(e))
        for e in summary.entries
    ]
    print_table(("candidate", "parent", "move", "outcome"), rows)
    commits = [(c.sha[:12], c.candidate, c.action.rpartition(":")[2]) for c in store.commits(session.id)]
    if commits:
        print_table(("commit", "candidate", "of"), commits)


def _show_candidate(store: Store, candidate: Candidate, json: bool) -> None:
    from cake.cli.console import print_json, print_table
    from cake.cli.session_view import outcome
    from cake.store.store import Entry

    entry = Entry(candidate, store.verdict(candidate.id))
    verdict = entry.verdict
    if json:
        document = verdict.as_json() if verdict else None
        print_json({"schema": 1, **candidate.model_dump(), "verdict": document})
        return
    print(f"{candidate.id}: {candidate.move} of {candidate.parent or 'nothing'} by {candidate.proposer}")
    print(outcome(entry))
    if verdict is not None:
        print_table(("stage", "seconds"), [(step.stage, f"{step.seconds:.3f}") for step in verdict.steps])
        _print_why(entry)
    print(candidate.text, end="")


def _print_why(entry: Entry) -> None:
    """The first failure in its place; the others are in the JSON document."""
    verdict = entry.verdict
    if verdict is None or verdict.ok:
        return
    print(f"{verdict.code}: {verdict.message}")
    lines = entry.candidate.text.split("\n")
    if 0 < verdict.line <= len(lines):
        print(f"{verdict.line} | {lines[verdict.line - 1]}")
