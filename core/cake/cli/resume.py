"""`cake resume`: go on with a session that was killed or interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cake.errors import CakeError, ExitCode

if TYPE_CHECKING:
    from cake.evaluate.evaluator import Evaluator
    from cake.plugins import Registry
    from cake.store.store import Store
    from cake.store.tables import Session
    from cake.workspace import Workspace


def resume(
    session: Annotated[str, typer.Argument(help="The session's id, or its beginning.")],
    json: Annotated[bool, typer.Option("--json", help="End with one JSON document.")] = False,
) -> None:
    """Go on with a session where it stopped: nothing is lost, judged twice or committed twice.

    Exit status as of `cake evolve`; a session that has ended is summed up again.
    """
    from cake.agent.session import sum_up, target
    from cake.cli.console import workspace_plugins
    from cake.cli.session_view import open_store
    from cake.evaluate.supervisor import Supervisor
    from cake.store.tables import Session
    from cake.workspace import open_workspace

    workspace = open_workspace()
    store = open_store(workspace)
    found = store.find(session)
    row = found if isinstance(found, Session) else store.session(found.session)
    if row.reason:
        typer.echo(f"session {row.id} has ended ({row.reason}): there is nothing to resume", err=True)
        _report(store, row, json)
        if sum_up(store, row.id).best is None:
            raise typer.Exit(ExitCode.REFUSED)
        return
    if workspace.running(row.id):
        raise CakeError(f"session {row.id} is running; `cake show {row.id}` tells how far it is")
    registry = workspace_plugins(workspace.root)
    evaluator = Supervisor(workspace.root, target(row))
    try:
        evaluator.ready()
        valid = proceed_and_report(workspace, registry, store, row, evaluator, json)
    finally:
        evaluator.close()
    if not valid:
        raise typer.Exit(ExitCode.REFUSED)


def proceed_and_report(
    workspace: Workspace,
    registry: Registry,
    store: Store,
    session: Session,
    evaluator: Evaluator,
    json: bool,
) -> bool:
    """Run a session to its end with progress, and report; whether it has a valid kernel."""
    from cake.agent.session import proceed, sum_up
    from cake.cli.session_view import Display
    from cake.evaluate.ladder import fingerprint

    typer.echo(f"session {session.id}: go on after an interruption with `cake resume {session.id}`", err=True)
    done = max(0, sum(entry.verdict is not None for entry in store.entries(session.id)) - 1)
    with Display(session.candidates, done, quiet=json) as display:
        proceed(workspace, registry, store, session, evaluator, fingerprint, display.show)
    _report(store, session, json)
    return sum_up(store, session.id).best is not None


def _report(store: Store, session: Session, json: bool) -> None:
    from cake.agent.session import sum_up
    from cake.cli.console import print_json
    from cake.cli.session_view import print_summary

    summary = sum_up(store, session.id)
    if json:
        print_json(summary.as_json())
    else:
        print_summary(summary)
