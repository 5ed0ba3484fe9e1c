"""Starting kernels meet their tasks' tolerances on the machine, and the tolerances see a forgotten column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from cake.ir import instantiate, parse
from cake.kinds.task import Array, Task
from cake.machine.engine import run
from cake.plugins import Registry

DIMS = {"M": 70, "N": 72, "K": 200}
"""No multiple of any tile."""


def _sets(task: Task, dims: Mapping[str, int]) -> Iterator[tuple[str, dict[str, Array]]]:
    rng = np.random.default_rng(1)
    yield "random", task.inputs(dims, rng)
    yield from task.hostile(dims, rng).items()


def _dims(task: Task) -> dict[str, int]:
    axes = {axis for tensor in task.tensors.values() for axis in tensor.shape}
    dims = {axis: DIMS[axis] for axis in axes}
    # Row kernels run one CTA a row: a few rows do.
    return dims if "K" in axes else {**dims, "M": 3}


def _excess(task: Task, dims: Mapping[str, int], inputs: dict[str, Array], got: Mapping[str, Array]) -> float:
    """The largest error over what is allowed; infinite where a NaN or an infinity is out of place."""
    worst = 0.0
    for name, tolerance in task.tolerance(inputs, dims).items():
        want, have = task.oracle(inputs, dims)[name], got[name].astype(np.float64)
        finite = np.isfinite(want)
        odd = ~finite & ~((have == want) | (np.isnan(have) & np.isnan(want)))
        if odd.any():
            return float("inf")
        allowed = tolerance.absolute + tolerance.relative * np.abs(want[finite])
        worst = max(worst, float(np.max(np.abs(have[finite] - want[finite]) / allowed, initial=0.0)))
    return worst


@pytest.mark.parametrize(
    ("name", "arch"),
    [("gemm", "sm_80"), ("gemm", "sm_90a"), ("softmax", "sm_80"), ("rmsnorm", "sm_80")],
)
def test_starting_kernel_is_within_tolerance(registry: Registry, name: str, arch: str) -> None:
    task = registry.tasks[name]
    path = registry.root / task.kernels[arch]
    dims = _dims(task)
    instance = instantiate(parse(path.read_text(), str(path)), dims, primitives=registry.primitives)
    for label, inputs in _sets(task, dims):
        done = run(instance, inputs=inputs)
        assert not done.facts.findings, label
        assert all(written.all() for written in done.written.values()), label
        assert _excess(task, dims, inputs, done.outputs) <= 1, label


@pytest.mark.parametrize("name", ["gemm", "softmax", "rmsnorm"])
def test_tolerance_sees_a_forgotten_column(registry: Registry, name: str) -> None:
    task = registry.tasks[name]
    dims = _dims(task)
    worst = 0.0
    for _, inputs in _sets(task, dims):
        first = next(iter(inputs))
        forgetful = {**inputs, first: inputs[first].copy()}
        forgetful[first][:, -1] = -np.inf if name == "softmax" else 0
        got = {key: value.copy() for key, value in task.oracle(forgetful, dims).items()}
        if name != "gemm":
            # Row operators still write the last column: only its part in the reduction is forgotten.
            for key, value in task.oracle(inputs, dims).items():
                got[key][:, -1] = value[:, -1]
        worst = max(worst, _excess(task, dims, inputs, got))
    assert worst > 2
