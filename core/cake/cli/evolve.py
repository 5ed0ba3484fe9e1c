"""`cake evolve`: a session of the loop, from the task's start kernel to commits on a branch."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from cake.errors import ExitCode


def evolve(
    task: Annotated[str, typer.Argument(help="The task; `cake plugins --kind task` lists them.")],
    backend: Annotated[
        Literal["machine", "cuda"],
        typer.Option(help="machine: predict, without a GPU; cuda: run and time on this host's GPU."),
    ] = "machine",
    candidates: Annotated[int, typer.Option(min=1, max=100_000, help="Candidates to judge.")] = 40,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="End early once judging has taken so many seconds.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Fixes every random choice.")] = 0,
    arch: Annotated[str, typer.Option(help="Architecture of the start kernel (the device's own).")] = "",
    device: Annotated[str, typer.Option(help="Device that times are predicted for.")] = "H200",
    shape: Annotated[str, typer.Option(help="A named shape of the task (its first).")] = "",
    dim: Annotated[list[str] | None, typer.Option(help="Set one dimension: M=4096.")] = None,
    proposer: Annotated[str, typer.Option(help="Where candidates come from.")] = "search",
    json: Annotated[bool, typer.Option("--json", help="End with one JSON document.")] = False,
) -> None:
    """Evolve a kernel of TASK and commit each new best on the branch evolve/TASK/SESSION.

    Your checkout, index and HEAD are not touched. Exit status: 0 the search ended with a valid kernel,
    1 no kernel was valid, 2 bad input, 3 something is missing here, 130 interrupted (go on with
    `cake resume`).
    """
    from cake.agent.session import Wish, begin, plan, target
    from cake.cli.console import parse_dims, workspace_plugins
    from cake.cli.resume import proceed_and_report
    from cake.evaluate.ladder import fingerprint
    from cake.evaluate.supervisor import Supervisor
    from cake.store.store import Store
    from cake.workspace import open_repository, open_workspace

    dims = parse_dims(dim or [])
    workspace = open_workspace()
    registry = workspace_plugins(workspace.root)
    wish = Wish(task, backend, candidates, seed, seconds, device, arch, shape, dims, proposer)
    session = plan(workspace, registry, wish)
    workspace.prepare()
    if open_repository(workspace.repository).is_dirty():
        said = f"the checkout has changes that are not committed; the branch begins from {session.base[:10]}"
        typer.echo(f"note: {said}, plugins and start kernel are read as they are here", err=True)
    evaluator = Supervisor(workspace.root, target(session))
    try:
        store = Store(workspace.database)
        evaluator.ready()
        begin(workspace, store, session, fingerprint)
        valid = proceed_and_report(workspace, registry, store, session, evaluator, json)
    finally:
        evaluator.close()
    if not valid:
        raise typer.Exit(ExitCode.REFUSED)
