"""The algebra under the layouts against enumeration, and the named layouts against the manual's formulas."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cake.ir.layouts import (
    LANES,
    REPLICATED,
    Accumulator,
    OperandA,
    OperandB,
    RegisterLayout,
    Vector,
    depth,
)
from cake.ir.layouts.conversions import Conversion, conversion
from cake.ir.layouts.linear import Linear, basis, identity, reduce
from cake.ir.layouts.ownership import pack, padded


@st.composite
def maps(draw: st.DrawFn, inputs: int | None = None) -> Linear:
    bits = draw(st.integers(0, 6))
    size = draw(st.integers(0, 6)) if inputs is None else inputs
    columns = draw(st.lists(st.integers(0, (1 << bits) - 1), min_size=size, max_size=size))
    return Linear(tuple(columns), bits)


def span(vectors: tuple[int, ...]) -> set[int]:
    out = {0}
    for vector in vectors:
        out |= {other ^ vector for other in out}
    return out


@given(maps())
def test_image_kernel_and_rank_are_those_of_enumeration(map_: Linear) -> None:
    everything = range(1 << len(map_.columns))
    results = {map_(x) for x in everything}
    assert span(map_.image) == results
    assert span(map_.kernel) == {x for x in everything if map_(x) == 0}
    assert len(results) == 1 << map_.rank
    assert len(map_.kernel) == len(map_.columns) - map_.rank


@given(maps(), st.data())
def test_maps_compose(first: Linear, data: st.DataObject) -> None:
    second = data.draw(maps(first.bits))
    x = data.draw(st.integers(0, (1 << len(first.columns)) - 1))
    assert first.then(second)(x) == second(first(x))
    assert first.then(identity(first.bits)) == first


@given(maps())
def test_inverses_exist_exactly_where_enumeration_has_them(map_: Linear) -> None:
    results = [map_(x) for x in range(1 << len(map_.columns))]
    if len(set(results)) == len(results):
        back = map_.left_inverse()
        assert [back(y) for y in results] == list(range(len(results)))
    else:
        with pytest.raises(ValueError, match="same image"):
            map_.left_inverse()
    if len(set(results)) == 1 << map_.bits:
        there = map_.right_inverse()
        assert all(map_(there(y)) == y for y in range(1 << map_.bits))
    else:
        with pytest.raises(ValueError, match="no input"):
            map_.right_inverse()


@given(st.lists(st.integers(0, 255), max_size=6), st.integers(0, 255))
def test_equal_spans_have_equal_bases(vectors: list[int], other: int) -> None:
    assert basis(vectors) == basis(sorted(span(tuple(vectors))))
    assert (reduce(basis(vectors), other) == 0) == (other in span(tuple(vectors)))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="2 bits"):
        Linear((4,), 2)
    with pytest.raises(ValueError, match="into a map of 3"):
        identity(2).then(identity(3))


# --- named layouts ------------------------------------------------------------------------------------------


def manual(
    layout: RegisterLayout, shape: tuple[int, ...], warp: int, lane: int, register: int
) -> tuple[int, ...]:
    """The element by the formulas of the PTX ISA's figures."""
    group, thread = lane // 4, lane % 4
    match layout:
        case Vector(width=width, over=over):
            chunk, item = divmod(register, width)
            return ((chunk * over * LANES + warp * LANES + lane) * width + item,)
        case Accumulator(over=over):
            block, rest = divmod(register, shape[1] // 2)
            row = warp * (shape[0] // over) + block * 16 + group + 8 * (rest % 4 >= 2)
            return (row, rest // 4 * 8 + thread * 2 + rest % 2)
        case OperandA(bytes=size):
            # Words of 4 bytes: rows below 8, the others, then the same 16 bytes further along k.
            word, k = 4 // size, depth(shape[1], size)
            block, i = divmod(register, k // 2)
            row = block // (shape[1] // k) * 16 + group + 8 * (i // word % 2)
            column = thread * word + i % word + 4 * word * (i // word >= 2)
            return (row, block % (shape[1] // k) * k + column)
        case OperandB(bytes=size):
            word, k = 4 // size, depth(shape[1], size)
            block, i = divmod(register, k // 4)
            column = thread * word + i % word + 4 * word * (i // word)
            return (block // (shape[1] // k) * 8 + group, block % (shape[1] // k) * k + column)
    return tuple(product(*map(range, shape)))[register] if shape else ()


TILES = st.one_of(
    st.tuples(
        st.builds(Vector, st.sampled_from([1, 2, 4, 8]), st.integers(1, 5)), st.tuples(st.integers(1, 3000))
    ),
    st.builds(
        lambda over, m, n: (Accumulator(over), (16 * over * m, 8 * n)),
        st.sampled_from([1, 4]),
        st.integers(1, 3),
        st.integers(1, 6),
    ),
    st.builds(
        lambda size, m, k: (OperandA(size), (16 * m, 16 // size * k)),
        st.sampled_from([1, 2, 4]),
        st.integers(1, 4),
        st.integers(1, 8),
    ),
    st.builds(
        lambda size, n, k: (OperandB(size), (8 * n, 16 // size * k)),
        st.sampled_from([1, 2, 4]),
        st.integers(1, 4),
        st.integers(1, 8),
    ),
    st.tuples(st.just(REPLICATED), st.sampled_from([(), (7,), (3, 5), (4, 8)])),
)


@given(TILES, st.data())
def test_named_layouts_are_those_of_the_manual(
    tile: tuple[RegisterLayout, tuple[int, ...]], data: st.DataObject
) -> None:
    layout, shape = tile
    assert layout.refusal(shape) == ""
    warp = data.draw(st.integers(0, layout.warps - 1))
    lane = data.draw(st.integers(0, LANES - 1))
    register = data.draw(st.integers(0, layout.elements(shape) - 1))
    assert layout.ownership(shape).registers == layout.elements(shape)
    assert layout.coordinate(shape, warp, lane, register) == manual(layout, shape, warp, lane, register)


@given(TILES, st.data())
def test_a_layout_of_powers_of_two_is_one_linear_map(
    tile: tuple[RegisterLayout, tuple[int, ...]], data: st.DataObject
) -> None:
    layout, shape = tile
    held = layout.ownership(shape)
    linear = held.linear()
    powers = [held.registers, layout.warps, *(shape if len(shape) == 2 else ())]
    assert (linear is not None) == all(value & value - 1 == 0 for value in powers)
    if linear is None:
        return
    warp = data.draw(st.integers(0, layout.warps - 1))
    lane = data.draw(st.integers(0, LANES - 1))
    register = data.draw(st.integers(0, held.registers - 1))
    bits = held.registers.bit_length() - 1
    index = register | lane << bits | warp << bits + 5
    room = 1 << linear.bits
    extents = (room,) if len(shape) == 1 else tuple(map(padded, shape))
    assert linear(index) == pack(layout.coordinate(shape, warp, lane, register), extents)


# --- conversions --------------------------------------------------------------------------------------------


def least(source: RegisterLayout, target: RegisterLayout, shape: tuple[int, ...]) -> Conversion:
    """By looking for every element of the target among what a thread, then a warp, of the source holds."""
    if source != REPLICATED and source.warps != target.warps:
        return "shared"
    found: set[str] = set()
    registers = range(source.elements(shape))
    warps = range(1 if source == REPLICATED else target.warps)
    threads = [
        [[source.coordinate(shape, w, lane, r) for r in registers] for lane in range(LANES)] for w in warps
    ]
    for warp, lane in product(range(target.warps), range(LANES)):
        lanes = threads[warp % len(threads)]
        for register in range(target.elements(shape)):
            wanted = target.coordinate(shape, warp, lane, register)
            if any(index >= extent for index, extent in zip(wanted, shape, strict=True)):
                continue
            if register < len(registers) and lanes[lane][register] == wanted:
                continue
            if wanted in lanes[lane]:
                found.add("in_thread")
            else:
                found.add("shuffle" if any(wanted in held for held in lanes) else "shared")
    if not found and source.elements(shape) != target.elements(shape):
        return "in_thread"
    kinds: tuple[Conversion, ...] = ("shared", "shuffle", "in_thread")
    return next((kind for kind in kinds if kind in found), "none")


PAIRS = [
    (Vector(1, 1), Vector(4, 1), (128,)),
    (Vector(1, 2), Vector(4, 2), (256,)),
    (Vector(2, 1), Vector(4, 1), (100,)),
    (Vector(2, 2), Vector(4, 2), (96,)),
    (REPLICATED, Vector(2, 2), (128,)),
    (REPLICATED, Vector(2, 3), (192,)),
    (Vector(2, 1), REPLICATED, (64,)),
    (Vector(2, 2), REPLICATED, (64,)),
    (Accumulator(1), OperandA(), (16, 16)),
    (Accumulator(1), OperandA(), (32, 16)),
    (Accumulator(1), OperandB(), (16, 16)),
    (OperandA(), OperandB(), (16, 48)),
    (Accumulator(4), Accumulator(1), (64, 8)),
    (REPLICATED, Accumulator(4), (64, 4 * 8)),
    (Accumulator(4), Accumulator(4), (64, 24)),
]


@pytest.mark.parametrize(("source", "target", "shape"), PAIRS, ids=lambda v: str(v))
def test_a_conversion_is_the_least_that_reaches_every_element(
    source: RegisterLayout, target: RegisterLayout, shape: tuple[int, ...]
) -> None:
    assert conversion(source, target, shape) == least(source, target, shape)


def test_an_accumulator_is_the_next_products_operand_without_moving() -> None:
    """What flash attention rests on: p, an accumulator, multiplies v as it lies."""
    assert conversion(Accumulator(1), OperandA(), (16, 16)) == "none"
    assert conversion(Accumulator(1), OperandA(), (32, 48)) == "none"
    assert conversion(Accumulator(1), OperandB(), (16, 16)) == "in_thread"
