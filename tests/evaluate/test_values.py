"""Values on the machine: wrong kernels are told how they are wrong, and on which instances."""

from __future__ import annotations

from pathlib import Path

import pytest

from cake.evaluate.evaluator import Target
from cake.evaluate.values import HOSTILE_BLOCKS, RANDOM_BLOCKS, Fall, check_values, small_instance
from cake.ir import parse
from cake.plugins import Registry

GOLDEN = [
    ("softmax", "softmax", "sm_80"),
    ("rmsnorm", "rmsnorm", "sm_80"),
    ("gemm", "gemm_sm80", "sm_80"),
    ("gemm", "gemm_sm90a", "sm_90a"),
]


def judge(registry: Registry, task: str, text: str, arch: str) -> int:
    found = registry.tasks[task]
    target = Target(task, next(iter(found.shapes.values())), arch, "H200", "machine", 0)
    return check_values(parse(text), registry, found, target, arch)


def golden(root: Path, name: str) -> str:
    return (root / f"plugins/kernels/{name}.cake").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("task", "name", "good", "bad", "code"),
    [
        ("rmsnorm", "rmsnorm", "/ N", "/ (N + 1)", "num/wrong-values"),
        ("rmsnorm", "rmsnorm", "EPS=1e-06", "EPS=0.01", "num/wrong-values"),
        ("rmsnorm", "rmsnorm", "grid(M)", "grid(M - 1)", "num/unwritten-output"),
        ("gemm", "gemm_sm90a", "tiles_m * tiles_n, blocks)", "tiles_m, blocks)", "num/unwritten-output"),
    ],
)
def test_a_wrong_kernel_is_told_how_it_is_wrong(
    task: str, name: str, good: str, bad: str, code: str, registry: Registry, root: Path
) -> None:
    text = golden(root, name)
    assert good in text
    with pytest.raises(Fall) as caught:
        judge(registry, task, text.replace(good, bad), "sm_90a" if "sm90a" in name else "sm_80")
    assert caught.value.code == code


@pytest.mark.parametrize(("task", "name", "arch"), GOLDEN)
@pytest.mark.parametrize("blocks", [RANDOM_BLOCKS, HOSTILE_BLOCKS])
def test_instances_are_small_and_within_the_contract(
    blocks: int, task: str, name: str, arch: str, registry: Registry, root: Path
) -> None:
    dims = next(iter(registry.tasks[task].shapes.values()))
    found = small_instance(parse(golden(root, name)), registry.primitives, dims, blocks, arch)
    assert found is not None
    assert 1 <= found.blocks <= blocks
    assert all(found.dims[axis] <= dims[axis] for axis in dims)
