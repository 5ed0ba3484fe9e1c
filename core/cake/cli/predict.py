"""`cake predict`: the time of a kernel on a device that need not be here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cake.errors import CakeError

if TYPE_CHECKING:
    from cake.cost import Floor, Prediction
    from cake.diagnostics import Source
    from cake.ir import Kernel
    from cake.kinds.task import Task
    from cake.plugins import Registry

SHOWN_LINES = 12
"""Lines of the breakdown that people see; the JSON document has all."""


def predict(
    file: Annotated[Path, typer.Argument(help="A kernel file; `-` reads standard input.")],
    device: Annotated[str, typer.Option(help="The GPU; `cake plugins` lists the devices.")] = "H200",
    dim: Annotated[list[str] | None, typer.Option(help="A dimension, as M=4096.")] = None,
    const: Annotated[
        list[str] | None, typer.Option("--const", "--constant", help="A constant over its default, as BM=64.")
    ] = None,
    task: Annotated[
        str, typer.Option(help="Take dimensions, bytes and flops from this task (default: by the kernel).")
    ] = "",
    shape: Annotated[str, typer.Option(help="A named shape of the task (its first).")] = "",
    registers: Annotated[
        int | None, typer.Option(min=16, max=255, help="Registers a thread, as the compiler reports them.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Predict a kernel's time: interval, bound, and what each unit and line costs.

    The numbers come from calibrations/; the last line says whether they are measured.
    """
    from cake import cost
    from cake.cli.console import parse_constants, parse_dims, print_json, read_text, workspace_plugins
    from cake.ir import instantiate, parse

    given, constants = parse_dims(dim or ()), parse_constants(const or ())
    text = read_text(file)
    registry = workspace_plugins()
    arch = registry.get("device", device).arch
    kernel = parse(text, str(file))
    served = _task(registry, kernel, task)
    dims = {**_shape(served, shape), **given}
    _complete(kernel, dims)
    mine = {name: value for name, value in dims.items() if name in kernel.dims or name in given}
    instance = instantiate(kernel, mine, constants, primitives=registry.primitives, arch=arch)
    flops = served.flops(dims) if served else 0.0
    found = cost.predict(instance, registry, device, registers=registers, flops=flops)
    lowest = None
    if served:
        lowest = cost.floor(registry, device, bytes=served.bytes(dims), flops=flops)
    if json:
        floor = {"bytes": lowest.bytes, "flops": lowest.flops, "seconds": lowest.seconds} if lowest else None
        print_json({"schema": 1, "file": str(file), "floor": floor, **found.as_json()})
    else:
        _show(found, lowest, kernel.source)


def _task(registry: Registry, kernel: Kernel, name: str) -> Task | None:
    """The task asked for, else the one whose tensors are the kernel's."""
    tensors = {p.name: p.output for p in kernel.params}
    if name:
        asked: Task = registry.get("task", name)
        if _tensors(asked) != tensors:
            theirs, ours = ", ".join(asked.tensors), ", ".join(tensors)
            raise CakeError(f"task {name} has the tensors {theirs}; the kernel takes {ours}")
        return asked
    wanted = (kernel.name, tensors)
    return next((task for task in registry.tasks.values() if (task.name(), _tensors(task)) == wanted), None)


def _tensors(task: Task) -> dict[str, bool]:
    return {name: tensor.output for name, tensor in task.tensors.items()}


def _shape(task: Task | None, name: str) -> dict[str, int]:
    if task is None:
        if name:
            raise CakeError("--shape names a shape of a task: give --task as well")
        return {}
    if not name:
        return dict(next(iter(task.shapes.values())))
    if name not in task.shapes:
        raise CakeError(f"task {task.name()} has no shape {name!r}; it has {', '.join(task.shapes)}")
    return dict(task.shapes[name])


def _complete(kernel: Kernel, dims: dict[str, int]) -> None:
    missing = [name for name in kernel.dims if name not in dims]
    if missing:
        options = " ".join(f"--dim {name}=4096" for name in missing)
        raise CakeError(f"{kernel.name} needs {', '.join(missing)}: give {options}, or --task")


# --- for people -------------------------------------------------------------------------------------------


def _show(found: Prediction, lowest: Floor | None, source: Source) -> None:
    from cake.cli.console import print_table

    print(f"{found.title} on {found.device}")
    print(f"time       {_time(found.seconds)}  ({_time(found.low)} to {_time(found.high)})")
    print(f"bound      {found.bound}")
    floor = lowest.seconds if lowest else found.floor_seconds
    work = ""
    if lowest:
        work = f": {_amount(lowest.bytes)}B at least, {_amount(lowest.flops)}flop"
        work += f"; {lowest.flops / found.seconds / 1e12:.1f} TFLOP/s, " if lowest.flops else "; "
        work += f"{lowest.bytes / found.seconds / 1e12:.2f} TB/s"
    print(f"floor      {_time(floor)}{work}")
    print(f"moves      {_amount(found.hbm_bytes)}B of device memory, {_amount(found.l2_bytes)}B through L2")
    it = found.occupancy
    about = "about " if it.estimated else ""
    print(
        f"occupancy  {it.blocks} CTAs an SM ({it.warps} warps; limit: {it.limit}; "
        f"{about}{it.registers} registers), {found.waves:.2f} waves"
    )
    print(f"symptoms   {', '.join(found.symptoms) or 'none'}")
    print()
    print_table(("unit", "busy"), [(unit, f"{share:.0%}") for unit, share in found.by_unit.items()])
    print()
    rows = []
    for line in found.by_line[:SHOWN_LINES]:
        text = source.lines[line.line - 1].strip() if 0 < line.line <= len(source.lines) else ""
        waits = " ".join(f"{why} {_time(seconds)}" for why, seconds in line.waits.items())
        rows.append((line.line, line.role, _time(line.seconds), f"{line.share:.0%}", waits, line.unit, text))
    print_table(("line", "role", "time", "of CTA", "waits for", "unit", "text"), rows)
    print()
    for note in found.notes:
        print(f"note: {note}")
    print(found.provenance)


def _time(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _amount(number: float) -> str:
    for scale, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number:.3g} "
