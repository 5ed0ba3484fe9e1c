"""What a plan must satisfy before the driver sees it, and built kernels in folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from cake.codegen.plan import LaunchPlan, PointerParam, TensorMapParam, TensorSpec
from cake.device.artefact import CUBIN, MANIFEST, PLAN, Artefact, enlist, listed, read
from cake.device.driver import arch_name, runs_on
from cake.device.tensormap import why_not
from cake.errors import CakeError

PLAN_OF_GEMM = LaunchPlan(
    "cake_gemm",
    "sm_90a",
    (132, 1, 1),
    (384, 1, 1),
    (2, 1, 1),
    200_000,
    (TensorMapParam("a", (128, 64), 128), PointerParam("c")),
    {"a": TensorSpec("bf16", (4095, 776), "in"), "c": TensorSpec("bf16", (4095, 1000), "out")},
)
BUILT = Artefact(
    "gemm",
    "ab12",
    {"M": 4095, "N": 1000},
    {"BM": 128},
    PLAN_OF_GEMM,
    "// text",
    b"\x7fELF",
    {"registers": 168},
)


@pytest.mark.parametrize(
    ("shape", "box", "swizzle", "words"),
    [
        ((4095, 776), (128, 64), 128, ""),
        ((8, 8), (64, 64), 128, ""),
        ((4096,), (64,), 0, ""),
        ((4096, 777), (128, 64), 128, "rows are 1554 bytes apart"),
        ((4096, 776), (128, 128), 128, "over the swizzle span of 128"),
        ((4096, 776), (512, 64), 128, "outside 1 to 256"),
        ((4096, 776), (64,), 128, "a box of 1 axes for a tensor of 2"),
        ((4096, 776), (128, 4), 0, "rows of the box are 8 bytes"),
        ((4096, 776), (128, 64), 16, "no swizzle of 16 bytes"),
        ((2, 2, 2, 2, 2, 8), (1, 1, 1, 1, 1, 8), 0, "6 axes"),
    ],
)
def test_what_the_copy_engine_cannot_address_is_said_in_words(
    shape: tuple[int, ...], box: tuple[int, ...], swizzle: int, words: str
) -> None:
    said = why_not(TensorMapParam("a", box, swizzle), TensorSpec("bf16", shape, "in"))
    assert words in said if words else said == ""


def test_a_tensor_map_needs_an_aligned_tensor() -> None:
    param, spec = TensorMapParam("a", (64, 64), 128), TensorSpec("bf16", (64, 64), "in")
    assert why_not(param, spec, 4096 + 16) == ""
    assert "address" in why_not(param, spec, 4096 + 8)


def test_where_machine_code_runs() -> None:
    assert arch_name(9, 0) == "sm_90a"
    assert arch_name(8, 9) == "sm_89"
    assert arch_name(12, 0) == "sm_120a"
    assert runs_on("sm_80", "sm_80")
    assert runs_on("sm_80", "sm_89")
    assert not runs_on("sm_89", "sm_80")
    assert not runs_on("sm_80", "sm_90a")
    assert runs_on("sm_90a", "sm_90a")
    assert not runs_on("sm_100a", "sm_103a")


def test_a_built_kernel_survives_its_folder(tmp_path: Path) -> None:
    BUILT.write(tmp_path / "x")
    assert read(tmp_path / "x") == BUILT
    assert BUILT.folder_name == "gemm-M4095-N1000-BM128-sm_90a"


def test_a_cubin_that_was_swapped_is_noticed(tmp_path: Path) -> None:
    BUILT.write(tmp_path)
    (tmp_path / CUBIN).write_bytes(b"\x7fELF2")
    with pytest.raises(CakeError, match="build it again"):
        read(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', '{"schema": 99}'])
def test_a_damaged_plan_is_one_clear_message(tmp_path: Path, text: str) -> None:
    BUILT.write(tmp_path)
    (tmp_path / PLAN).write_text(text)
    with pytest.raises(CakeError, match=r"plan\.json"):
        read(tmp_path)
    with pytest.raises(CakeError, match="no built kernel"):
        read(tmp_path / "nowhere")


def test_a_manifest_names_each_kernel_once_in_order(tmp_path: Path) -> None:
    enlist(tmp_path, ["b", "a"])
    enlist(tmp_path, ["c", "a"])
    assert listed(tmp_path / MANIFEST) == ["b", "a", "c"]
    (tmp_path / MANIFEST).write_text("nonsense")
    with pytest.raises(CakeError, match="no manifest"):
        listed(tmp_path / MANIFEST)
