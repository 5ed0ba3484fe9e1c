"""Legality in words: each question, with the figure that decides it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cake.ir import parse
from cake.ir.layouts.legality import Illegal, box, bulk_piece, matrix_rows, stride
from cake.ir.types import Buffer, DType, RegionType
from cake.plugins import Registry
from cake.verify import check


def shared(
    shape: tuple[int, ...], size: tuple[int, ...], swizzle: int = 0, dtype: DType = DType.bf16
) -> RegionType:
    return RegionType(
        Buffer("s", "shared", dtype, shape, swizzle=swizzle), size, tuple(n for n in size if n != 1)
    )


def tensor(shape: tuple[int, ...], size: tuple[int, ...], dtype: DType = DType.bf16) -> RegionType:
    return RegionType(Buffer("x", "global", dtype, shape), size, size)


LEGAL: list[tuple[Callable[[RegionType], Illegal | None], RegionType]] = [
    (matrix_rows, shared((2, 64, 72), (1, 32, 16))),
    (bulk_piece, shared((4, 64, 64), (1, 64, 64), 128)),
    (bulk_piece, shared((4, 64, 64), (1, 8, 64), 128)),
    (bulk_piece, shared((4, 64, 24), (2, 64, 24))),
    (box, tensor((999, 1000), (256, 64))),
    (stride, tensor((7, 9, 8), (1, 1, 8))),
]
ILLEGAL: list[tuple[Callable[[RegionType], Illegal | None], RegionType, str]] = [
    (matrix_rows, shared((64, 64), (64, 64), dtype=DType.f32), "16-bit elements, this is f32"),
    (matrix_rows, shared((64, 20), (64, 16)), "40 bytes, not a multiple of 16"),
    (matrix_rows, shared((64, 64), (64, 12)), "groups of 8, a row of this window has 12"),
    (matrix_rows, shared((64, 64), (12, 16)), "eights, this window has 12"),
    (matrix_rows, shared((64, 64), (64, 1)), "last two axes"),
    (bulk_piece, shared((4, 64, 64), (2, 8, 64)), "one contiguous piece"),
    (bulk_piece, shared((64, 64), (64, 32)), "one contiguous piece"),
    (bulk_piece, shared((64, 128), (64, 128), 128), "256 bytes with a swizzle of 128"),
    (box, tensor((8, 8, 8, 8, 8, 8), (1, 1, 1, 1, 1, 8)), "at most 5 axes"),
    (box, tensor((512, 64), (512, 64)), "at most 256 elements an axis, here 512"),
    (box, tensor((64, 64), (64, 4)), "8 bytes wide"),
    (stride, tensor((64, 100), (64, 64)), "stride of 200 bytes"),
]


@pytest.mark.parametrize(("question", "window"), LEGAL)
def test_legal_windows(question: Callable[[RegionType], Illegal | None], window: RegionType) -> None:
    assert question(window) is None


@pytest.mark.parametrize(("question", "window", "reason"), ILLEGAL)
def test_refusals_name_the_figure(
    question: Callable[[RegionType], Illegal | None], window: RegionType, reason: str
) -> None:
    found = question(window)
    assert found is not None
    assert reason in found.reason


def test_fragments_that_differ_are_told_what_their_meeting_takes(registry: Registry) -> None:
    text = """
@kernel(arch="sm_80")
def k(y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 32]
    with role("all", warps=1):
        a = zeros(f32, 16, 16, layout="mma")
        b = {b}
        store(y[:], {a} + b, vector=1)
"""
    cases = [
        ("a", 'zeros(f32, 32, 16, layout="mma")', ""),
        ("load(s[:])", "load(s[:], vector=1)", "registers"),
    ]
    for a, b, words in cases:
        said = check(parse(text.format(a=a, b=b)), registry, dims={"N": 32}).diagnostics
        assert [d.code for d in said] == ["type/operand"]
        assert words in said[0].help
