"""`cake run`: a kernel on this host's GPU against its task's float64 oracle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cake.cli.build import Wish, build_all
from cake.cli.console import parse_constants, parse_dims, print_json, print_table, workspace_plugins
from cake.errors import CakeError, ExitCode, Refused
from cake.plugins import Registry

if TYPE_CHECKING:
    from cake.device.artefact import Artefact
    from cake.kinds.task import Task

_COLUMNS = ("inputs", "output", "result", "largest error", "of tolerance", "relative error", "wrong")


def run(
    file: Annotated[Path | None, typer.Argument(help="A kernel file.")] = None,
    prebuilt: Annotated[
        Path | None, typer.Option(help="Run what `cake build --out` wrote into this folder instead.")
    ] = None,
    task: Annotated[str, typer.Option(help="The task to judge by (found by the kernel's tensors).")] = "",
    shape: Annotated[str, typer.Option(help="A named shape of the task (its first).")] = "",
    dim: Annotated[list[str] | None, typer.Option(help="A dimension, as M=4095.")] = None,
    constant: Annotated[list[str] | None, typer.Option(help="A constant over its default, as BM=64.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Fixes the random inputs.")] = 0,
    hostile: Annotated[bool, typer.Option(help="Also the task's hostile inputs.")] = True,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Run a kernel on this host's GPU against its task's float64 oracle.

    Exit status: 0 right, 1 wrong, 3 no GPU.
    """
    from cake.device.client import DeviceClient
    from cake.device.trial import check, pose, pose_hostile

    registry = workspace_plugins()
    wish = Wish(task, shape, parse_dims(dim or ()), parse_constants(constant or ()))
    with DeviceClient() as client:
        info = client.probe()
        artefact = obtain(registry, info.arch, file, prebuilt, wish)
        judge = judging(registry, artefact, task)
        problems = [pose(judge, artefact.dims, seed)]
        if hostile:
            problems += pose_hostile(judge, artefact.dims, seed + 1)
        checks = [check(client, artefact, problem) for problem in problems]
    ok = all(one["ok"] for one in checks)
    if json:
        said = {"kernel": artefact.name, "task": judge.name(), "dims": artefact.dims, "arch": info.arch}
        print_json({"schema": 1, "ok": ok, "device": info.as_json(), **said, "checks": checks})
    else:
        dims = " ".join(f"{name}={value}" for name, value in artefact.dims.items())
        print(f"{artefact.name} {dims} on {info.name} ({info.arch}), task {judge.name()}")
        _show(checks)
    if not ok:
        raise typer.Exit(ExitCode.REFUSED)


def obtain(registry: Registry, arch: str, file: Path | None, prebuilt: Path | None, wish: Wish) -> Artefact:
    """The kernel built for `arch`: from its file, or the artefact in `prebuilt`.

    Raises CakeError where both or neither is given, KernelErrors where the compiler refuses.
    """
    if (file is None) == (prebuilt is None):
        raise CakeError("give a kernel file or --prebuilt FOLDER, one of the two")
    if prebuilt is not None:
        from cake.device.artefact import read

        if wish.shape or wish.dims or wish.constants:
            raise CakeError(
                "a prebuilt kernel has its dims and constants: leave --shape, --dim, --constant out"
            )
        return read(prebuilt)
    assert file is not None
    artefacts, refused = build_all(registry, file, wish, [arch])
    if refused:
        raise Refused(f"the compiler refuses {file}:\n{refused[0]['text']}")
    return artefacts[0]


def judging(registry: Registry, artefact: Artefact, task: str) -> Task:
    """The task that judges. Raises CakeError where the kernel does not have its tensors."""
    from cake.device.trial import serves, task_of

    name = task or artefact.task
    if not name:
        return task_of(registry.tasks, artefact.plan, artefact.dims)
    found: Task = registry.get("task", name)
    if not serves(found, artefact.plan, artefact.dims):
        raise CakeError(f"{artefact.name} does not take and give the tensors of task {name} at these dims")
    return found


def _show(checks: list[dict[str, Any]]) -> None:
    rows = []
    for one in checks:
        for output, c in one["outputs"].items():
            verdict = "ok" if c["ok"] else "WRONG"
            wrong = f"{c['mismatched']} of {c['elements']}"
            figures = (f"{float(c[key]):.3g}" for key in ("error", "worst", "relative_error"))
            rows.append((one["inputs"], output, verdict, *figures, wrong))
    print_table(_COLUMNS, rows)
    for one in checks:
        for finding in one["findings"]:
            print(f"{one['inputs']}: {finding['code']}: {finding['message']}")
        for output, c in one["outputs"].items():
            if not c["ok"]:
                print(f"{one['inputs']}: {output}{c['where']} is {c['got']}, should be {c['want']}")
