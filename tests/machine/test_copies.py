"""Copies under the schedules that hardware may take: their own cases hold, and what goes wrong without."""

from __future__ import annotations

import pytest

from cake.conformance.support import dedent, random_inputs, read_marks
from cake.ir import instantiate, parse
from cake.ir.instance import Instance
from cake.kinds.primitive import Good
from cake.kinds.rule import Bad as RuleBad
from cake.machine.engine import run
from cake.machine.explore import explore
from cake.verify import check
from tests.golden_kernels import REGISTRY

COPIES = (
    "cp_async",
    "cp_async_arrive",
    "tma_load",
    "tma_store",
    "tma_reduce",
    "bulk_copy",
    "bulk_reduce",
    "fence_async",
    "tensormap_init",
    "tensormap_replace",
    "tensormap_publish",
    "fence_tensormap",
)
CASES = [
    pytest.param(case, id=f"{name}: {case.name}")
    for name in COPIES
    for case in REGISTRY.primitives[name].cases
    if isinstance(case, Good) and case.dims
]
PLEDGE = """
@kernel(arch="sm_90a")
def stage(x: Global[f32, M, N], y: GlobalOut[f32, N]):
    require(M == 8, N == 32)
    grid(1)
    s = Shared[f32, 8, 32]
    full = MBarrier(arrivals={arrivals})
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warps=2):
        cp_async(s[:, :], x[:, :])
        cp_async_arrive(full)
        {meet}
        if warp < {arrivals}:
            arrive(full)
    with role("store", warps=1):
        wait(full, 0)
        store(y[:], load(s[6, :], vector=1), vector=1)
"""


def instance_of(text: str, dims: dict[str, int]) -> Instance:
    return instantiate(parse(dedent(text)), dims, primitives=REGISTRY.primitives)


@pytest.mark.parametrize("case", CASES)
def test_cases_give_the_same_under_every_schedule(case: Good) -> None:
    instance = instance_of(case.kernel, dict(case.dims))
    inputs = random_inputs(instance, seed=0)
    expected = run(instance, inputs=inputs).outputs
    assert explore(instance, inputs, schedules=16, expected=expected).fault(expected) == ""


@pytest.mark.parametrize(
    ("arrivals", "meet", "right"),
    [(2, "pass", True), (1, "named_sync(1, warps=2)", True), (1, "pass", False)],
    ids=["each warp arrives", "one arrives who knows of the other", "one arrives alone"],
)
def test_a_phase_waits_for_the_copies_that_its_arrivals_know_of(
    arrivals: int, meet: str, right: bool
) -> None:
    text = PLEDGE.format(arrivals=arrivals, meet=meet)
    instance = instance_of(text, {"M": 8, "N": 32})
    inputs = random_inputs(instance, seed=0)
    expected = {"y": inputs["x"][6]}
    fault = explore(instance, inputs, schedules=24, expected=expected).fault(expected)
    assert (fault == "") == right
    assert (not check(parse(dedent(text)), REGISTRY).diagnostics) == right


RULES = (
    "unfenced-global-access",
    "unfenced-mma-operand",
    "unfenced-tma-store",
    "unacquired-tensormap",
    "rewritten-tensormap",
)
WRONG = [
    pytest.param(case, id=f"{rule}: {case.name}")
    for rule in RULES
    for case in REGISTRY.rules[f"sync/{rule}"].cases
    if isinstance(case, RuleBad)
]


@pytest.mark.parametrize("case", WRONG)
def test_without_the_mend_some_schedule_shows_other_bytes(case: RuleBad) -> None:
    mended = instance_of(case.fixed, dict(case.dims))
    inputs = random_inputs(mended, seed=0)
    expected = run(mended, inputs=inputs).outputs
    assert explore(mended, inputs, schedules=12, expected=expected).fault(expected) == ""
    wrong = instance_of(read_marks(case.kernel).text, dict(case.dims))
    assert explore(wrong, inputs, schedules=12, expected=expected).fault(expected)


REDUCED = """
@kernel(arch="sm_90a")
def total(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    require(M == 8, N == 32)
    grid(1)
    s = Shared[f32, 8, 32](swizzle=128)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=2):
        with one_thread():
            expect_bytes(a, s)
            tma_load(s, x[0:+8, 0:+32], a)
        wait(a, 0)
        with one_thread():
            tma_store(y[0:+8, 0:+32], s)
            bulk_commit()
            bulk_wait(0)
            {first}
        {meet}
        with one_thread("warp"):
            tma_reduce(y[0:+8, 0:+32], s, "add")
            bulk_commit()
            bulk_wait_read(0)
"""


@pytest.mark.parametrize("first", ["pass", 'tma_reduce(y[0:+8, 0:+32], s, "add")'])
@pytest.mark.parametrize("meet", ["cta_sync()", "pass"])
def test_reductions_come_after_what_they_add_to_whoever_reduced_before(first: str, meet: str) -> None:
    kernel = parse(dedent(REDUCED.format(first=first, meet=meet)))
    codes = {d.code for d in check(kernel, REGISTRY).diagnostics}
    assert codes == (set() if meet != "pass" else {"sync/global-race"})
