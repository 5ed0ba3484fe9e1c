"""The ladder: a candidate stops at the first stage that refuses it, and the verdict says where and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from cake.evaluate.evaluator import Target
from cake.evaluate.ladder import Ladder, fingerprint
from cake.evaluate.verdict import STAGES, Verdict
from cake.plugins import Registry

DIMS = {"M": 4096, "N": 4096}
SYNC = "            cta_sync()\n"


@pytest.fixture(scope="module")
def ladder(registry: Registry) -> Ladder:
    return Ladder(registry, Target("rmsnorm", DIMS, "sm_80", "H200", "machine", 0))


@pytest.fixture(scope="module")
def golden(root: Path) -> str:
    return (root / "plugins/kernels/rmsnorm.cake").read_text(encoding="utf-8")


def climb(ladder: Ladder, text: str, beat: float | None = None) -> Verdict:
    entered: list[str] = []
    verdict = ladder.climb(text, beat, entered.append)
    assert entered == [step.stage for step in verdict.steps]
    assert [STAGES.index(step.stage) for step in verdict.steps] == list(range(len(entered)))
    return verdict


def test_without_a_gpu_a_good_kernel_ends_with_a_prediction_and_a_compiled_winner(
    ladder: Ladder, golden: str
) -> None:
    verdict = climb(ladder, golden)
    assert verdict.ok
    assert verdict.stage == "compile"
    assert verdict.timing is not None
    assert verdict.timing.low <= verdict.timing.seconds <= verdict.timing.high
    assert verdict.resources is not None
    assert verdict.resources["registers"] > 0
    assert verdict.symptoms


def test_what_is_beaten_already_is_not_compiled(ladder: Ladder, golden: str) -> None:
    verdict = climb(ladder, golden, beat=1e-9)
    assert (verdict.ok, verdict.stage, verdict.resources) == (True, "time", None)


@pytest.mark.parametrize(
    ("good", "bad", "stage", "code", "primitive"),
    [
        ("def rmsnorm(", "def rmsnorm(((", "parse", None, ""),
        ("warp_sum(v * v)", "warp_sum(N)", "types", "type/operand", "store"),
        ("y: GlobalOut[bf16", "y: GlobalOut[f32", "types", "type/interface", ""),
        ("w: Global[bf16, N]", "w: Global[bf16, M]", "types", "type/interface", ""),
        (SYNC, "", "machine", None, None),
        ("/ N", "/ (N + 1)", "machine", "num/wrong-values", ""),
        ("grid(M)", "grid((M + 1) // 2)", "machine", "mem/unwritten-output", "store"),
    ],
)
def test_a_bad_kernel_stops_where_it_is_first_seen_to_be_bad(
    good: str, bad: str, stage: str, code: str | None, primitive: str | None, ladder: Ladder, golden: str
) -> None:
    assert good in golden
    verdict = climb(ladder, golden.replace(good, bad))
    assert not verdict.ok
    assert verdict.stage == stage
    assert verdict.message
    assert code is None or verdict.code == code
    assert primitive is None or verdict.primitive == primitive
    assert verdict.timing is None


def test_a_race_is_told_at_its_line_and_instruction(ladder: Ladder, golden: str) -> None:
    verdict = climb(ladder, golden.replace(SYNC, ""))
    line = golden.replace(SYNC, "").split("\n")[verdict.line - 1]
    assert f"{verdict.primitive}(" in line
    assert verdict.diagnostics[0]["code"] == verdict.code


def test_a_fault_of_cake_is_the_candidates_verdict(
    ladder: Ladder, golden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> int:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("cake.evaluate.ladder.check_values", broken)
    verdict = climb(ladder, golden)
    assert (verdict.ok, verdict.stage, verdict.code) == (False, "machine", "ladder/internal")
    assert "ZeroDivisionError: by zero" in verdict.message


def test_a_text_has_one_fingerprint_however_it_is_laid_out(golden: str) -> None:
    assert fingerprint(golden) == fingerprint(golden.replace("grid(M)", "grid( M )"))
    assert fingerprint(golden) != fingerprint(golden.replace("grid(M)", "grid(M - 1)"))
    assert fingerprint("no kernel") != fingerprint("no kernel either")
