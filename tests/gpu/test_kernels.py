"""The golden kernels on a GPU against their tasks' float64 oracles: full tiles, tails, hostile inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from cake.codegen import compile_source, generate
from cake.device.artefact import Artefact
from cake.device.client import DeviceClient
from cake.device.trial import check, pose, pose_hostile, task_of
from cake.errors import MissingEnvironment
from cake.ir import content_hash, instantiate, parse
from cake.ir.arch import canonical, claimed
from cake.kinds.task import Task
from cake.plugins import Registry
from cake.verify.contract import holds
from tests.golden_kernels import GOLDEN, Golden

pytestmark = pytest.mark.gpu

ROWS = [{"M": 64, "N": 1024}, {"M": 7, "N": 1000}, {"M": 3, "N": 8}, {"M": 1, "N": 8192}]
PRODUCTS = [
    {"M": 256, "N": 256, "K": 256},
    {"M": 4095, "N": 1000, "K": 776},
    {"M": 130, "N": 72, "K": 40},
    {"M": 1, "N": 8, "K": 8},
    {"M": 1024, "N": 4096, "K": 1024},
]
SHAPES = {("M", "N"): ROWS, ("K", "M", "N"): PRODUCTS}
"""Shapes worth a trial, by the axes of a task; another task's are those it names `tails` and `small`."""


def shapes(task: Task) -> list[Mapping[str, int]]:
    axes = tuple(sorted({axis for tensor in task.tensors.values() for axis in tensor.shape}))
    named = [task.shapes[name] for name in ("tails", "small") if name in task.shapes]
    return list(SHAPES.get(axes, named))


def admitted(golden: Golden, dims: Mapping[str, int]) -> bool:
    """Whether the kernel's contract holds there, with its constants as they are."""
    return holds(golden.kernel, {c.name: c.default for c in golden.kernel.constants}, dims)


CASES: list[tuple[str, Mapping[str, int], dict[str, int]]] = [
    (name, dims, {})
    for name, golden in GOLDEN.items()
    for dims in shapes(golden.task)
    if admitted(golden, dims)
]
CASES += [
    ("gemm_sm90a", {"M": 500, "N": 776, "K": 328}, {"BM": bm, "BN": bn, "STAGES": stages})
    for bm, bn, stages in ((64, 64, 2), (128, 256, 3), (192, 128, 4), (64, 256, 3))
]
CASES += [
    ("gemm_sm80", {"M": 500, "N": 776, "K": 328}, {"BM": 64, "BN": 128, "BK": 64, "STAGES": 3}),
    ("softmax", {"M": 9, "N": 1001}, {"VEC": 1}),
    ("rmsnorm", {"M": 9, "N": 1002}, {"VEC": 2, "WARPS": 4}),
]


@pytest.fixture(scope="module")
def client() -> Iterator[DeviceClient]:
    with DeviceClient() as made:
        try:
            made.probe()
        except MissingEnvironment as missing:
            pytest.skip(str(missing))
        yield made


def built(
    registry: Registry, name: str, dims: dict[str, int], constants: dict[str, int], arch: str
) -> Artefact:
    """The kernel file compiled for this GPU; skips where it does not claim it."""
    path = registry.kernels[name]
    kernel = parse(path.read_text(), path.name)
    if canonical(arch) not in claimed(canonical(kernel.arch)):
        pytest.skip(f"{name} does not claim {arch}")
    instance = instantiate(kernel, dims, constants, primitives=registry.primitives, arch=arch)
    generated = generate(instance)
    compiled = compile_source(generated.source, instance.arch, path=str(path))
    resources = {"registers": compiled.registers}
    return Artefact(
        name,
        content_hash(kernel),
        dims,
        constants,
        generated.plan,
        generated.source,
        compiled.cubin,
        resources,
    )


@pytest.mark.parametrize(("name", "dims", "constants"), CASES, ids=str)
def test_the_kernel_gives_what_the_oracle_says(
    client: DeviceClient, registry: Registry, name: str, dims: dict[str, int], constants: dict[str, int]
) -> None:
    artefact = built(registry, name, dims, constants, client.probe().arch)
    task = task_of(registry.tasks, artefact.plan, dims)
    problems = [pose(task, dims, seed=7), *pose_hostile(task, dims, seed=8)]
    for problem in problems:
        said = check(client, artefact, problem, repeats=3)
        assert said["findings"] == [], problem.name
        assert said["ok"], (problem.name, said["outputs"])
