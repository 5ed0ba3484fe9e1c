"""`cake build`: kernels compiled for the architectures they claim, on any machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cake.cli.console import (
    parse_constants,
    parse_dims,
    print_json,
    print_table,
    read_text,
    workspace_plugins,
)
from cake.errors import CakeError, ExitCode
from cake.plugins import Registry

if TYPE_CHECKING:
    from cake.codegen import Compiled
    from cake.device.artefact import Artefact
    from cake.ir import Kernel

_COLUMNS = ("kernel", "arch", "registers", "spilled bytes", "stack bytes", "shared bytes", "cubin bytes")


def build(
    file: Annotated[Path, typer.Argument(help="A kernel file; `-` reads standard input.")],
    arch: Annotated[
        list[str] | None, typer.Option(help="An architecture, as sm_90a; without, each that is claimed.")
    ] = None,
    task: Annotated[str, typer.Option(help="The task it serves (found by its tensors).")] = "",
    shape: Annotated[str, typer.Option(help="A named shape of the task (its first).")] = "",
    dim: Annotated[list[str] | None, typer.Option(help="A dimension, as M=4096.")] = None,
    constant: Annotated[list[str] | None, typer.Option(help="A constant over its default, as BM=64.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write CUDA text, cubin and launch plan below this folder.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=256, help="Compilers at once (one a core).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Compile kernels for each architecture they claim, without a GPU.

    With NVRTC, in parallel processes. Prints registers a thread, bytes spilled, shared memory. Exit status 1
    where the compiler refuses.
    """
    registry = workspace_plugins()
    wish = Wish(task, shape, parse_dims(dim or ()), parse_constants(constant or ()))
    artefacts, refused = build_all(registry, file, wish, arch, processes)
    if out is not None:
        from cake.device.artefact import enlist

        for artefact in artefacts:
            artefact.write(out / artefact.folder_name)
        enlist(out, [artefact.folder_name for artefact in artefacts])
    if json:
        print_json(
            {"schema": 1, "file": str(file), "built": [_plain(a) for a in artefacts], "refused": refused}
        )
    else:
        _show(artefacts, refused, out)
    if refused:
        raise typer.Exit(ExitCode.REFUSED)


@dataclass(frozen=True, slots=True)
class Wish:
    """Which instance of a kernel: dims over those of the task's shape, constants over their defaults."""

    task: str = ""
    shape: str = ""
    dims: Mapping[str, int] = field(default_factory=dict)
    constants: Mapping[str, int | float] = field(default_factory=dict)


def build_all(
    registry: Registry,
    file: Path,
    wish: Wish,
    archs: Sequence[str] | None = None,
    processes: int | None = None,
) -> tuple[list[Artefact], list[dict[str, Any]]]:
    """Artefacts for `archs` (those the kernel claims), and refusals as {"arch", "diagnostics", "text"}.

    Dims not given come from the task's shape. Raises KernelErrors where the text or an instance is refused,
    CakeError for unknown names.
    """
    from cake.codegen import generate
    from cake.codegen.parallel import Job, compile_many
    from cake.diagnostics import KernelErrors, as_json, render
    from cake.ir import content_hash, instantiate, parse
    from cake.ir.arch import canonical, claimed

    kernel = parse(read_text(file), str(file))
    served, full = shape_of(registry, kernel, wish)
    try:
        targets = list(archs) if archs else list(claimed(canonical(kernel.arch)))
    except KeyError:
        targets = [kernel.arch]  # `instantiate` refuses it at its place
    instances = [
        instantiate(kernel, full, wish.constants, primitives=registry.primitives, arch=arch)
        for arch in targets
    ]
    generated = [generate(instance) for instance in instances]
    jobs = [Job(g.source, g.plan.arch, kernel.source.path) for g in generated]
    artefacts, refused = [], []
    for made, instance, result in zip(
        generated, instances, compile_many(jobs, processes, cache_dir=_cache(registry)), strict=True
    ):
        if isinstance(result, KernelErrors):
            diagnostics = as_json(result.diagnostics, kernel.source)
            text = render(result.diagnostics, kernel.source)
            refused.append({"arch": instance.arch, "diagnostics": diagnostics, "text": text})
            continue
        artefacts.append(_artefact(file.stem, content_hash(kernel), served, instance, made, result))
    return artefacts, refused


def shape_of(registry: Registry, kernel: Kernel, wish: Wish) -> tuple[str, dict[str, int]]:
    """The task's name (empty where none is known) and all dims. Raises CakeError for unknown names."""
    fitting = [name for name, known in registry.tasks.items() if _fits(kernel, known)]
    names = [wish.task] if wish.task else fitting
    if len(names) != 1:
        if wish.shape:
            raise CakeError(f"--shape {wish.shape}: no single task has this kernel's tensors; give --task")
        return "", dict(wish.dims)
    task = registry.get("task", names[0])
    if wish.shape and wish.shape not in task.shapes:
        raise CakeError(f"task {names[0]} has no shape {wish.shape!r}; it has {', '.join(task.shapes)}")
    named = task.shapes[wish.shape or next(iter(task.shapes))]
    return names[0], {**{name: named[name] for name in kernel.dims if name in named}, **wish.dims}


def _fits(kernel: Kernel, task: Any) -> bool:
    """Whether the kernel's parameters are the task's tensors, by names, dtypes and symbolic axes."""
    from cake.ir.printer import expr_text

    wanted = {name: (t.dtype, tuple(t.shape), t.output) for name, t in task.tensors.items()}
    return wanted == {
        p.name: (p.dtype, tuple(expr_text(axis) for axis in p.shape), p.output) for p in kernel.params
    }


def _artefact(
    name: str, digest: str, task: str, instance: Any, generated: Any, compiled: Compiled
) -> Artefact:
    from cake.device.artefact import Artefact

    resources = {
        "registers": compiled.registers,
        "spill_store_bytes": compiled.spill_store_bytes,
        "spill_load_bytes": compiled.spill_load_bytes,
        "stack_bytes": compiled.stack_bytes,
        "shared_bytes": compiled.static_shared_bytes + generated.plan.dynamic_shared_bytes,
        "notes": list(compiled.notes),
    }
    return Artefact(
        "kernel" if name == "-" else name,
        digest,
        dict(instance.dims),
        dict(instance.constants),
        generated.plan,
        generated.source,
        compiled.cubin,
        resources,
        task,
    )


def _cache(registry: Registry) -> Path | None:
    """The workspace's cache of compiles, where it keeps state at all."""
    state = registry.root / ".cake"
    return state / "compiled" if state.is_dir() else None


def _plain(artefact: Artefact) -> dict[str, Any]:
    return {
        "name": artefact.name,
        "task": artefact.task,
        "arch": artefact.plan.arch,
        "dims": artefact.dims,
        "constants": artefact.constants,
        "kernel": artefact.kernel,
        "cubin_bytes": len(artefact.cubin),
        **artefact.resources,
    }


def _show(artefacts: Sequence[Artefact], refused: Sequence[Mapping[str, Any]], out: Path | None) -> None:
    rows = []
    for artefact in artefacts:
        r = artefact.resources
        spilled = r["spill_store_bytes"] + r["spill_load_bytes"]
        sizes = (r["registers"], spilled, r["stack_bytes"], r["shared_bytes"], len(artefact.cubin))
        rows.append((artefact.name, artefact.plan.arch, *sizes))
    if rows:
        print(" ".join(f"{name}={value}" for name, value in artefacts[0].dims.items()))
        print_table(_COLUMNS, rows)
    for artefact in artefacts:
        for note in artefact.resources["notes"]:
            print(f"{artefact.plan.arch}: {note}")
    for one in refused:
        print(f"\nrefused for {one['arch']}:\n{one['text']}")
    if out is not None and artefacts:
        print(f"written below {out}: {', '.join(a.folder_name for a in artefacts)}")
