"""`cake build`, `run`, `bench` and the suite where there is no GPU: files, tables, messages, statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cake.cli.app import main
from cake.device import suite
from cake.device.artefact import MANIFEST, read
from cake.device.driver import open_gpu
from cake.errors import MissingEnvironment

KERNELS = Path(__file__).parents[2] / "plugins" / "kernels"


def cake(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert isinstance(end.value.code, int)
    return end.value.code


def has_gpu() -> bool:
    try:
        open_gpu()
    except MissingEnvironment:
        return False
    return True


without_gpu = pytest.mark.skipif(has_gpu(), reason="this host has a GPU")


def test_build_compiles_for_each_architecture_claimed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cake("build", KERNELS / "softmax.cake", "--dim", "M=64", "--dim", "N=1000", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert [one["arch"] for one in said["built"]] == ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"]
    for one in said["built"]:
        assert one["task"] == "softmax"
        assert one["registers"] > 0
        assert one["spill_store_bytes"] == 0
        assert one["shared_bytes"] > 0


def test_dims_come_from_the_tasks_shape(capsys: pytest.CaptureFixture[str]) -> None:
    file = KERNELS / "gemm_sm90a.cake"
    assert (
        cake("build", file, "--shape", "tails", "--constant", "BN=256", "--constant", "STAGES=3", "--json")
        == 0
    )
    (one,) = json.loads(capsys.readouterr().out)["built"]
    assert one["dims"] == {"M": 4095, "N": 1000, "K": 776}
    assert one["constants"]["BN"] == 256
    assert one["arch"] == "sm_90a"


def test_what_is_built_is_written_and_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for n in ("512", "1000"):
        words = ("--dim", "M=8", "--dim", f"N={n}", "--arch", "sm_90a", "--out", tmp_path)
        assert cake("build", KERNELS / "rmsnorm.cake", *words) == 0
    names = json.loads((tmp_path / MANIFEST).read_text())["artefacts"]
    assert len(names) == 2
    artefact = read(tmp_path / names[1])
    assert artefact.task == "rmsnorm"
    assert artefact.dims == {"M": 8, "N": 1000}
    assert artefact.plan.entry in artefact.source
    assert artefact.cubin.startswith(b"\x7fELF")
    assert "registers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("build", KERNELS / "gemm_sm90a.cake", "--dim", "K=777"), 1, "1554 bytes"),
        (("build", KERNELS / "softmax.cake", "--arch", "sm_70"), 1, "unknown architecture"),
        (("build", KERNELS / "gemm_sm90a.cake", "--arch", "sm_80"), 1, "does not run on sm_80"),
        (("build", KERNELS / "softmax.cake", "--shape", "huge"), 2, "no shape 'huge'"),
        (("build", KERNELS / "softmax.cake", "--task", "nothing"), 2, "no task is called 'nothing'"),
        (("build", KERNELS / "nothing.cake"), 2, "cannot read"),
        (("build", KERNELS / "softmax.cake", "--constant", "VEC=x"), 2, "NAME=NUMBER"),
    ],
)
def test_bad_input_is_one_message_and_a_meant_status(
    words: tuple[str | Path, ...], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cake(*words) == status
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


@without_gpu
@pytest.mark.parametrize("command", ["run", "bench"])
def test_without_a_gpu_the_commands_say_so(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cake(command, KERNELS / "softmax.cake") == 3
    assert "no CUDA driver/GPU" in capsys.readouterr().err


@without_gpu
def test_the_suite_says_so_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--dim", "M=8", "--dim", "N=64", "--arch", "sm_90a", "--out", tmp_path)
    assert cake("build", KERNELS / "softmax.cake", *words) == 0
    assert suite.main([str(tmp_path / MANIFEST), "--out", str(tmp_path / "out")]) == 3
    assert "no CUDA driver/GPU" in capsys.readouterr().err
    assert suite.main([str(tmp_path / "nothing.json"), "--out", str(tmp_path / "out")]) == 2
    assert "cannot read" in capsys.readouterr().err
