"""The kernels of plugins/kernels/ with their tasks: a new file there is tested everywhere at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cake.ir import Instance, Kernel, instantiate, parse
from cake.ir.nodes import Name
from cake.kinds.task import Task
from cake.plugins import Registry, load

FOLDER = Path(__file__).resolve().parents[1] / "plugins" / "kernels"
REGISTRY = load(FOLDER.parents[1])


@dataclass(frozen=True)
class Golden:
    """A kernel, the task whose tensors are its parameters, and dims with a tail on every axis."""

    name: str
    kernel: Kernel
    task: Task

    @property
    def dims(self) -> Mapping[str, int]:
        return self.task.shapes["tails"]

    def instance(self, registry: Registry, arch: str | None = None) -> Instance:
        """On the dims with tails."""
        return instantiate(self.kernel, self.dims, primitives=registry.primitives, arch=arch)


def _serves(task: Task, kernel: Kernel) -> bool:
    wanted = {(name, t.dtype, t.shape, t.output) for name, t in task.tensors.items()}
    return wanted == {
        (p.name, p.dtype, tuple(a.id for a in p.shape if isinstance(a, Name)), p.output)
        for p in kernel.params
    }


def _golden(path: Path) -> Golden:
    kernel = parse(path.read_text(encoding="utf-8"), path.name)
    tasks = [task for task in REGISTRY.tasks.values() if _serves(task, kernel)]
    assert len(tasks) == 1, f"{path}: a golden kernel has exactly the tensors of one task"
    assert "tails" in tasks[0].shapes, f"{tasks[0].name()}: name a shape `tails`, no multiple of any tile"
    return Golden(path.stem, kernel, tasks[0])


GOLDEN = {path.stem: _golden(path) for path in sorted(FOLDER.glob("*.cake"))}
