"""Outputs against oracles, arrays on their way, and the findings that need no GPU to be computed."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from cake.device.arrays import load, save
from cake.device.compare import compare
from cake.device.memory import poison_byte, unwritten

BF16 = np.dtype(ml_dtypes.bfloat16)


def test_within_tolerance_is_absolute_plus_relative() -> None:
    want = np.array([[0.0, 100.0]])
    said = compare(np.array([[0.5, 101.0]], np.float32), want, 0.5, 0.005)
    assert said.ok
    assert said.worst == pytest.approx(1.0)
    assert said.error == 1.0
    said = compare(np.array([[0.5, 101.1]], np.float32), want, 0.5, 0.005)
    assert not said.ok
    assert said.mismatched == 1
    assert said.where == (0, 1)
    assert said.got == pytest.approx(101.1, abs=1e-4)


@pytest.mark.parametrize(
    ("got", "want", "ok"),
    [
        (np.nan, np.nan, True),
        (np.inf, np.inf, True),
        (np.inf, -np.inf, False),
        (np.nan, 1.0, False),
        (1.0, np.nan, False),
        (np.inf, 1.0, False),
        (1.0, np.inf, False),
        (np.nan, np.inf, False),
    ],
)
def test_nan_and_infinity_agree_with_themselves_alone(got: float, want: float, ok: bool) -> None:
    said = compare(np.array([0.0, got], np.float32), np.array([0.0, want]), 1e30, 1e30)
    assert said.ok is ok
    assert said.mismatched == (0 if ok else 1)
    json.loads(json.dumps(said.as_json(), allow_nan=False))


def test_exact_comparison_with_no_tolerance() -> None:
    same = np.arange(6, dtype=np.int32)
    assert compare(same, same.astype(np.float64), 0.0, 0.0).ok
    assert compare(same, same + 1.0, 0.0, 0.0).mismatched == 6


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="shape"):
        compare(np.zeros((2, 3), np.float32), np.zeros((3, 2)), 1.0, 1.0)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "i32", "e4m3", "e5m2"])
def test_arrays_travel_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    from cake.ir.types import DType

    array = np.arange(-6, 6).reshape(3, 4).astype(DType(dtype).numpy)
    save(tmp_path / "a.npy", array.T)
    back = load(tmp_path / "a.npy", dtype)
    assert back.dtype == array.dtype
    assert back.tobytes() == np.ascontiguousarray(array.T).tobytes()


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "a.npy", np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="bf16"):
        load(tmp_path / "a.npy", "bf16")


def test_poison_is_nan_and_only_poison_counts_as_unwritten() -> None:
    raw = np.full((4, 4), 0xFFFF, np.uint16).view(BF16)
    assert np.isnan(raw.astype(np.float32)).all()
    assert unwritten(raw).all()
    written = raw.copy()
    written[1, 2] = np.nan  # the NaN that arithmetic makes
    written[3, 3] = -1
    assert np.argwhere(~unwritten(written)).tolist() == [[1, 2], [3, 3]]
    integers = np.full(4, -1, np.int32)
    assert not unwritten(integers).any()
    assert unwritten(np.full(4, poison_byte(integers.dtype), np.uint8).view(np.int32)).all()
