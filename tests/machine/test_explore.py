"""Schedules that hardware may take: right kernels do not show them, wrong ones go wrong under one."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from cake.evaluate.values import small_instance
from cake.ir import Instance, instantiate, parse
from cake.ir.arch import canonical
from cake.kinds.task import Array
from cake.machine.engine import run
from cake.machine.explore import explore
from cake.plugins import Registry
from tests.golden_kernels import GOLDEN, REGISTRY
from tests.verify.test_mutants import MUTANTS, Mutant, mutated

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

HARMLESS = {
    # Nothing reads the last copies; that they are under way when the CTA ends is refused all the same.
    "gemm_sm80: drop cp_async_wait(0) (0)",
}


@cache
def posed(name: str) -> tuple[Instance, dict[str, Array], dict[str, Array]]:
    """A small instance in which a CTA takes several tiles, its inputs, and the good kernel's outputs."""
    golden = GOLDEN[name]
    arch = canonical(golden.kernel.arch)
    found = small_instance(golden.kernel, REGISTRY.primitives, golden.task.shapes["tails"], 3, arch)
    assert found is not None
    few = {c.name: 1 for c in golden.kernel.constants if c.name == "SMS"}
    instance = instantiate(golden.kernel, found.dims, few, primitives=REGISTRY.primitives)
    inputs = golden.task.inputs(instance.dims, np.random.default_rng(0))
    return instance, inputs, run(instance, inputs=inputs).outputs


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_kernels_give_the_same_under_every_schedule(name: str) -> None:
    instance, inputs, expected = posed(name)
    explored = explore(instance, inputs, schedules=14, expected=expected)
    assert explored.fault(expected) == ""
    assert len(explored.outcomes) == 14


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.id)
def test_what_a_rule_refuses_goes_wrong_under_some_schedule(mutant: Mutant, registry: Registry) -> None:
    good, inputs, expected = posed(mutant.kernel)
    kernel = parse(mutated(good.kernel.source.text, mutant))
    instance = instantiate(kernel, good.dims, good.constants, primitives=registry.primitives)
    fault = explore(instance, inputs, schedules=24, expected=expected).fault(expected)
    assert bool(fault) == (mutant.id not in HARMLESS)


def test_a_schedule_is_the_same_each_time() -> None:
    instance, inputs, _ = posed("gemm_sm90a")
    first, second = (explore(instance, inputs, schedules=14, seed=5) for _ in range(2))
    for a, b in zip(first.outcomes, second.outcomes, strict=True):
        assert (a.policy, a.ended) == (b.policy, b.ended)
        assert all(np.array_equal(a.outputs[name], b.outputs[name]) for name in a.outputs)
