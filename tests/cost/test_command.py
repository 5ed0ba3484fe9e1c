"""`cake predict`: what it prints for people and for scripts, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cake.cli.app import main

KERNELS = Path("plugins/kernels")


@pytest.fixture(autouse=True)
def here(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def predict(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["predict", *map(str, words)])
    return end.value.code


def test_the_breakdown_stands_beside_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert predict(KERNELS / "gemm_sm90a.cake", "--task", "gemm", "--shape", "square2048") == 0
    out = capsys.readouterr().out
    assert "gemm M=2048 N=2048 K=2048 on H200" in out
    assert "floor " in out
    assert "17.2 Gflop" in out
    assert "wait(full[s], parity)" in out
    assert out.rstrip().endswith("vendor data, not measured (issue, memory, tensor_core)")


def test_scripts_get_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--dim", "M=4096", "--dim", "N=1024", "--const", "VEC=4", "--json")
    assert predict(KERNELS / "softmax.cake", *words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert document["kernel"] == "softmax M=4096 N=1024 VEC=4"
    assert document["low"] <= document["seconds"] <= document["high"]
    assert document["floor"]["bytes"] == 2 * 2 * 4096 * 1024
    assert {line["task"] for line in document["by_line"]} >= {"load", "store"}


def test_a_kernel_of_no_task_needs_its_dimensions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (KERNELS / "softmax.cake").read_text(encoding="utf-8").replace("def softmax", "def rows")
    file = tmp_path / "rows.cake"
    file.write_text(text, encoding="utf-8")
    assert predict(file, "--dim", "M=64") == 2
    assert "rows needs N: give --dim N=4096, or --task" in capsys.readouterr().err
    assert predict(file, "--dim", "M=64", "--dim", "N=512") == 0
    assert "floor" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("gemm_sm90a.cake", "--device", "B200"), 1, "arch/not-claimed"),
        (("gemm_sm80.cake", "--device", "A100"), 2, "no calibration of A100 sets 'clock'"),
        (("softmax.cake", "--task", "gemm"), 2, "task gemm has the tensors a, b, c; the kernel takes x, y"),
        (("softmax.cake", "--shape", "none"), 2, "task softmax has no shape 'none'"),
        (("softmax.cake", "--dim", "N=1001"), 1, "contract/violated"),
        (("gemm_sm90a.cake", "--const", "STAGES=64"), 1, "cost/does-not-fit"),
        (("absent.cake",), 2, "cannot read"),
    ],
)
def test_a_refusal_says_what_is_wrong(
    words: tuple[str, ...], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict(KERNELS / words[0], *words[1:]) == status
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
