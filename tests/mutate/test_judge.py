"""Judging: reports kill, wrong values kill, equal execution excuses, and rewrites raise no alarm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cake.cli.app import main
from cake.ir import parse, print_kernel
from cake.mutate import OPERATORS, PRESERVING, Outcome, Truth, derive, false_alarms, judge, subject, task_of
from cake.plugins import Registry
from cake.verify import Report, check

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "plugins" / "kernels"
GOLDEN = sorted(path.stem for path in KERNELS.glob("*.cake"))
GUARDED = Path(__file__).parent / "guarded.cake"


def outcomes(path: Path, registry: Registry, *names: str) -> Iterator[Outcome]:
    kernel = parse(path.read_text(), path.stem)
    parent = subject(kernel, registry)
    truth = Truth(parent.kernel, registry, task_of(registry, kernel), thorough=False)
    for mutant in derive(parent, [o for o in OPERATORS if o.name in names]):
        yield judge(mutant, truth, registry)


def test_what_the_check_cannot_see_is_killed_by_values(registry: Registry) -> None:
    found = {
        o.mutant.description: o for o in outcomes(KERNELS / "softmax.cake", registry, "fill", "swap-buffer")
    }
    swapped = found["peaks in place of sums"]
    assert (swapped.verdict, swapped.stage, swapped.codes) == ("killed", "values", ())
    assert "in place of" in swapped.reason
    assert found["fill 0.0"].stage == "static"


def test_an_output_left_out_is_killed_by_values(registry: Registry) -> None:
    found = list(outcomes(GUARDED, registry, "drop-access"))
    assert [o.stage for o in found] == ["values"]
    assert "written by one alone" in found[0].reason


def test_an_accumulator_that_is_not_cleared_is_killed_by_values(registry: Registry) -> None:
    found = list(outcomes(KERNELS / "gemm_sm90a.cake", registry, "stale-fragment"))
    assert [(o.verdict, o.stage) for o in found] == [("killed", "values")] * len(found)
    assert len(found) == 2


def test_a_second_meeting_is_equivalent(registry: Registry) -> None:
    assert [o.verdict for o in outcomes(KERNELS / "rmsnorm.cake", registry, "double-sync")] == ["equivalent"]


def test_a_kernel_does_not_differ_from_itself(registry: Registry) -> None:
    kernel = parse(GUARDED.read_text(), "guarded")
    assert Truth(kernel, registry).difference(parse(print_kernel(kernel))) == ""


def test_schedules_show_the_harm_that_program_order_hides(registry: Registry) -> None:
    """A copy that is used too soon: in program order the values are right."""
    kernel = parse((KERNELS / "gemm_sm90a.cake").read_text(), "gemm_sm90a")
    parent = subject(kernel, registry)
    truth = Truth(parent.kernel, registry, thorough=False)
    lost = [m for m in derive(parent, OPERATORS) if m.description == "wgmma_wait is gone"]
    assert [bool(truth.misbehaviour(m.kernel)) for m in lost] == [True] * len(lost)
    assert truth.misbehaviour(parent.kernel) == ""


def test_without_its_rule_a_harmful_mutant_survives(registry: Registry, monkeypatch) -> None:
    """What the check lets pass and schedules fault is a hole in the check."""
    blind = Report((), (), (), 0.0)
    monkeypatch.setattr(import_module("cake.mutate.judge"), "check", lambda kernel, registry, dims: blind)
    monkeypatch.setattr(Truth, "difference", lambda truth, mutant: "")
    found = list(outcomes(KERNELS / "softmax.cake", registry, "drop-sync"))
    assert [o.verdict for o in found] == ["survived"] * 2
    assert all("schedule" in o.reason for o in found)


@pytest.mark.parametrize("name", GOLDEN)
def test_rewrites_that_keep_a_kernel_raise_no_alarm(name: str, registry: Registry) -> None:
    parent = subject(parse((KERNELS / f"{name}.cake").read_text(), name), registry)
    sample = derive(parent, PRESERVING, 16, seed=1)
    assert [(m.description, d.code) for m, d in false_alarms(sample, registry)] == []


@settings(max_examples=12)
@given(
    name=st.sampled_from(["softmax", "rmsnorm"]),
    seeds=st.lists(st.integers(0, 10**6), min_size=2, max_size=6),
)
def test_rewrites_one_after_another_raise_no_alarm(name: str, seeds: list[int], registry: Registry) -> None:
    kernel = parse((KERNELS / f"{name}.cake").read_text(), name)
    for seed in seeds:
        [step] = derive(subject(kernel, registry), PRESERVING, 1, seed)
        kernel = step.kernel
    assert check(kernel, registry).diagnostics == ()


# --- the command ------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["mutate", *words])
    said = capsys.readouterr()
    return int(end.value.code or 0), said.out, said.err


def test_the_command_counts_by_operator(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    status, out, err = run(capsys, str(GUARDED), "--operator", "guard", "--operator", "drop-access")
    lines = [line.split() for line in out.splitlines()]
    assert (status, err) == (0, "")
    assert lines[0] == ["operator", "killed", "equivalent", "survived"]
    assert ["drop-access", "1", "0", "0"] in lines
    assert out.splitlines()[-1] == "killed=3/3 equivalent=0 survived=0"


def test_the_command_writes_json(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    status, out, _ = run(capsys, str(GUARDED), "--sample", "6", "--seed", "3", "--json")
    document = json.loads(out)
    assert status == 0
    assert document["schema"] == 1
    assert len(document["mutants"]) == 6
    assert {m["operator"] for m in document["mutants"]} == set(document["operators"])


def test_an_unknown_operator_is_named_with_its_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, str(GUARDED), "--operator", "swizle")
    assert (status, err) == (2, "cake: --operator swizle: no such operator; did you mean swizzle?\n")


def test_a_kernel_with_errors_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    bad = tmp_path / "bad.cake"
    bad.write_text(GUARDED.read_text().replace("row < M", "row <= M"))
    status, _, err = run(capsys, str(bad))
    assert status == 1
    assert "mem/window-out-of-bounds" in err
