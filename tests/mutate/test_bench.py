"""bench/mutation.py: chunks cover the sample, outcomes are plain data, and both corpora are clean."""

from __future__ import annotations

import json
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench() -> dict[str, Any]:
    return run_path(str(ROOT / "bench" / "mutation.py"))


def test_chunks_cover_the_sample_once(bench: dict[str, Any]) -> None:
    works = bench["planned"](["softmax", "rmsnorm"], False, True, 0)
    for harmful in (True, False):
        for kernel in ("softmax", "rmsnorm"):
            mine = [w for w in works if (w.kernel, w.harmful) == (kernel, harmful)]
            number = len(bench["mutants"](False, kernel, harmful, mine[0].sample, 0)[0])
            assert [i for w in mine for i in range(w.start, w.stop)] == list(range(number))


def test_outcomes_are_plain_data_with_a_verdict(bench: dict[str, Any]) -> None:
    found = bench["judged"](bench["Work"](False, "rmsnorm", True, 6, 0, 0, 6))
    assert json.loads(json.dumps(found)) == found
    assert {outcome["verdict"] for outcome in found} <= {"killed", "equivalent", "survived"}
    assert bench["judged"](bench["Work"](False, "rmsnorm", False, 6, 0, 0, 6)) == []


def test_every_golden_kernel_and_most_cases_are_subjects(bench: dict[str, Any]) -> None:
    assert set(bench["corpus"](False)) == set(bench["plugins"]().kernels)
    families = {name.partition(":")[0] for name in bench["corpus"](True)}
    assert {"cluster_sync", "tma_load", "wgmma", "mbarrier_init", "cp_async"} <= families
