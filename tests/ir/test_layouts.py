"""Layouts against brute force: each element held once, swizzles permute, conflicts counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cake.ir.layouts import (
    LANES,
    SWIZZLES,
    Accumulator,
    OperandA,
    OperandB,
    RegisterLayout,
    Vector,
    bank_conflicts,
    swizzle_offset,
)

EXACT = [
    (Accumulator(1), (16, 8)),
    (Accumulator(1), (64, 32)),
    (Accumulator(4), (64, 128)),
    (Accumulator(4), (128, 24)),
    (OperandA(), (16, 16)),
    (OperandA(), (64, 32)),
    (OperandB(), (8, 16)),
    (OperandB(), (32, 48)),
    (Vector(8, 2), (1024,)),
]


@pytest.mark.parametrize(("layout", "shape"), EXACT, ids=lambda v: str(v))
def test_every_element_is_held_by_one_register(layout: RegisterLayout, shape: tuple[int, ...]) -> None:
    assert layout.refusal(shape) == ""
    held = [
        layout.coordinate(shape, warp, lane, register)
        for warp in range(layout.warps)
        for lane in range(LANES)
        for register in range(layout.elements(shape))
    ]
    total = 1
    for axis in shape:
        total *= axis
    assert len(held) == len(set(held)) == total
    assert all(0 <= c < n for element in held for c, n in zip(element, shape, strict=True))


@given(st.integers(1, 5000), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]))
def test_a_vector_row_is_covered_with_phantoms_behind_it(columns: int, width: int, warps: int) -> None:
    layout = Vector(width, warps)
    held = [
        layout.coordinate((columns,), warp, lane, register)[0]
        for warp in range(warps)
        for lane in range(LANES)
        for register in range(layout.elements((columns,)))
    ]
    assert sorted(held) == list(range(columns + layout.phantoms((columns,))))
    assert layout.phantoms((columns,)) < layout.stride


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_a_swizzle_permutes_chunks_and_keeps_rows(swizzle: int) -> None:
    moved = [swizzle_offset(offset, swizzle) for offset in range(4096)]
    assert sorted(moved) == list(range(4096))
    for before, after in enumerate(moved):
        assert before // 128 == after // 128
        assert before % 16 == after % 16
        assert swizzle == 0 or before // swizzle == after // swizzle


@given(st.lists(st.integers(0, 255).map(lambda i: 16 * i), min_size=32, max_size=32))
def test_conflicts_agree_with_counting_words_per_bank(addresses: list[int]) -> None:
    cycles = 0
    for start in range(0, 32, 8):
        per_bank = [set[int]() for _ in range(32)]
        for address in addresses[start : start + 8]:
            for byte in range(address, address + 16):
                per_bank[byte // 4 % 32].add(byte // 4)
        cycles += max(len(words) for words in per_bank)
    assert bank_conflicts(addresses, 16) == cycles - 4


@pytest.mark.parametrize(("row_bytes", "swizzle"), [(128, 128), (64, 64), (32, 32)])
def test_swizzled_rows_load_matrices_without_conflicts(row_bytes: int, swizzle: int) -> None:
    """ldmatrix reads 8 rows of 16 bytes a phase: plain rows collide, swizzled ones do not."""
    for chunk in range(row_bytes // 16):
        plain = [row * row_bytes + chunk * 16 for row in range(8)]
        assert bank_conflicts(plain, 16) > 0
        assert bank_conflicts([swizzle_offset(a, swizzle) for a in plain], 16) == 0
