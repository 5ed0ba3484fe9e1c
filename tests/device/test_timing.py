"""The statistics of timing, and how many copies make a cache cold."""

from __future__ import annotations

import numpy as np
import pytest

from cake.device.timing import copies_needed, ratio, spread


def test_a_spread_is_median_and_quartiles() -> None:
    said = spread([5.0, 1.0, 2.0, 4.0, 3.0], launches=7)
    assert (said.low, said.median, said.high) == (2.0, 3.0, 4.0)
    assert (said.least, said.most, said.samples, said.launches) == (1.0, 5.0, 5, 7)


def test_a_ratio_above_one_means_that_the_first_is_faster() -> None:
    rng = np.random.default_rng(0)
    first = 1.0 + 0.01 * rng.standard_normal(40)
    other = 1.2 + 0.01 * rng.standard_normal(40)
    said = ratio(first, other)
    assert said.low < said.ratio < said.high
    assert said.ratio == pytest.approx(1.2, abs=0.02)
    assert said.low > 1.15
    assert said.rounds == 20


def test_a_drift_that_both_arms_share_does_not_move_the_ratio() -> None:
    drift = np.repeat(np.linspace(1.0, 2.0, 20), 2)
    said = ratio(drift, 1.1 * drift)
    assert said.ratio == pytest.approx(1.1)
    assert said.high - said.low < 1e-9


def test_equal_arms_have_one_inside_the_interval() -> None:
    rng = np.random.default_rng(1)
    said = ratio(1 + 0.05 * rng.standard_normal(40), 1 + 0.05 * rng.standard_normal(40))
    assert said.low < 1.0 < said.high


def test_the_interval_is_deterministic_by_seed() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random(20) + 1, rng.random(20) + 1
    assert ratio(a, b, seed=3) == ratio(a, b, seed=3)


@pytest.mark.parametrize(
    ("size", "free", "l2", "copies"),
    [
        (100 << 20, 100 << 30, "cold", 2),
        (100 << 20, 100 << 30, "warm", 1),
        (10 << 20, 100 << 30, "cold", 15),
        (1 << 10, 100 << 30, "cold", 64),
        (40 << 30, 100 << 30, "cold", 1),
    ],
)
def test_copies_exceed_the_cache_and_fit_the_memory(size: int, free: int, l2: str, copies: int) -> None:
    assert copies_needed(size, 50 << 20, free, "warm" if l2 == "warm" else "cold") == copies
