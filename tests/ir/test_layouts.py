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
    least_wavefronts,
    swizzle_offset,
    wavefronts,
)
from cake.ir.layouts.linear import Linear, basis
from cake.ir.layouts.shared import offset_map, phase

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


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 255)), min_size=32, max_size=32),
    st.sampled_from([1, 2, 4, 8, 16]),
)
def test_wavefronts_agree_with_serving_words_turn_by_turn(places: list[int | None], width: int) -> None:
    """A simulation: in each turn of a phase every bank hands out one word, to all lanes that want it."""
    lanes = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[width]
    addresses = [None if place is None else place * width for place in places]
    turns = 0
    for start in range(0, 32, lanes):
        wanted = [
            byte // 4
            for address in addresses[start : start + lanes]
            if address is not None
            for byte in range(address, address + width)
        ]
        while wanted:
            served: dict[int, int] = {}
            for word in wanted:
                served.setdefault(word % 32, word)
            wanted = [word for word in wanted if served[word % 32] != word]
            turns += 1
    assert wavefronts(addresses, width) == turns
    assert least_wavefronts(addresses, width) <= turns


@given(
    st.sampled_from([16, 32, 64, 128, 256, 1024]),
    st.sampled_from(SWIZZLES),
    st.sampled_from([2, 4]),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.permutations(range(9)),
)
def test_wavefronts_of_linear_accesses_follow_from_ranks(
    columns: int, swizzle: int, element: int, width: int, order: list[int]
) -> None:
    """Each lane bit moves one bit of the coordinates: distinct words over distinct banks, a power of two."""
    width = max(width, element)
    address = offset_map((512, columns), element, swizzle)
    assert address is not None
    low = width.bit_length() - element.bit_length()
    lanes = Linear(tuple(1 << low + bit for bit in order[:5]), len(address.columns)).then(address)
    in_phase = lanes.columns[: phase(width).bit_length() - 1]
    words = [column >> 2 for column in in_phase] + [1 << bit for bit in range(max(0, width.bit_length() - 3))]
    turns = 1 << len(basis(words)) - len(basis(word % 32 for word in words))
    phases = 32 // phase(width)
    assert wavefronts([lanes(lane) for lane in range(32)], width) == phases * turns


@pytest.mark.parametrize(("row_bytes", "swizzle"), [(128, 128), (64, 64), (32, 32)])
def test_swizzled_rows_load_matrices_without_conflicts(row_bytes: int, swizzle: int) -> None:
    """ldmatrix reads 8 rows of 16 bytes a phase: plain rows collide, swizzled ones do not."""
    for chunk in range(row_bytes // 16):
        plain = [row * row_bytes + chunk * 16 for row in range(8)]
        assert wavefronts(plain, 16) > 1
        assert wavefronts([swizzle_offset(a, swizzle) for a in plain], 16) == 1


@given(
    st.integers(1, 9),
    st.sampled_from([8, 16, 64, 128]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(SWIZZLES),
    st.data(),
)
def test_offsets_in_a_buffer_are_linear_where_pitches_are_powers_of_two(
    rows: int, columns: int, element: int, swizzle: int, data: st.DataObject
) -> None:
    found = offset_map((rows, columns), element, swizzle)
    assert found is not None
    row, column = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    packed = row * columns + column
    assert found(packed) == swizzle_offset((row * columns + column) * element, swizzle)
    assert found.rank == len(found.columns)
    assert found.then(found.left_inverse())(packed) == packed
    assert offset_map((rows, 24), element, swizzle) is None
