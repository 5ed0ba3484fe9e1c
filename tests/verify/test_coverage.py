"""Shapes and CTAs are chosen so that branches are taken; what none takes is said."""

from __future__ import annotations

import pytest

from cake import verify
from cake.ir import parse
from cake.plugins import Registry

RACE = """
@kernel(arch="sm_80")
def sums(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    require(N == 64)
    grid(M)
    s = Shared[f32, 2]
    with role("row", warps=2):
        v = load(x[block, :], vector=1, fill=0.0)
        store(s[warp], warp_sum(v))
        if CONDITION:
            cta_sync()
        store(y[block, :], v * reduce_sum(load(s[:])), vector=1)
"""
TAKEN = ["block != 5", "block != 77", "M < 3000", "M % 7 != 3", "block + 1 != blocks or M < 100"]


@pytest.mark.parametrize("condition", TAKEN)
def test_the_cta_or_shape_is_found_on_which_the_barrier_is_missing(
    condition: str, registry: Registry
) -> None:
    report = verify.check(parse(RACE.replace("CONDITION", condition)), registry)
    assert [d.code for d in report.diagnostics] == ["sync/shared-race"]


def test_what_no_shape_reaches_is_said(registry: Registry) -> None:
    text = RACE.replace(
        "if CONDITION:\n            cta_sync()", "cta_sync()\n        if M > 10**9:\n            a = 1"
    )
    report = verify.check(parse(text.replace("10**9", "1000000000")), registry)
    assert report.ok
    assert "line 12: no CTA that was executed gets there" in report.unchecked


def test_a_contract_of_equalities_and_bounds_is_met(registry: Registry) -> None:
    text = RACE.replace("if CONDITION:\n            ", "").replace(
        "N == 64", "N == 64, M >= 3, M * N <= 640, M % 5 == 0"
    )
    report = verify.check(parse(text), registry)
    assert report.ok
    assert report.instances
    assert not report.unchecked
