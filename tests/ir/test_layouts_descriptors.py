"""Matrix descriptors against the canonical layouts of the PTX ISA, written down as the manual has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cake.ir.layouts import SWIZZLES, swizzle_offset
from cake.ir.layouts.descriptors import Descriptor, Illegal, Major, major_refusal, matrix_descriptor
from cake.ir.types import Buffer, DType, RegionType

DTYPES = [DType.bf16, DType.f32, DType.e4m3]


def window(dtype: DType, shape: tuple[int, ...], swizzle: int, size: tuple[int, ...]) -> RegionType:
    lead = (1,) * (len(shape) - len(size))
    return RegionType(Buffer("s", "shared", dtype, shape, swizzle=swizzle), (*lead, *size), size)


def row_major(shape: tuple[int, ...], index: tuple[int, ...]) -> int:
    at = 0
    for extent, i in zip(shape, index, strict=True):
        at = at * extent + i
    return at


def cute(shape: tuple[int, ...], stride: tuple[int, ...], index: int) -> int:
    """Offset of `index` in one mode of a CuTe layout; the last extent is open."""
    at = 0
    for extent, step in zip(shape, stride, strict=True):
        index, inside = divmod(index, extent) if extent else (0, index)
        at += inside * step
    return at


def canonical(major: Major, swizzle: int, size: int, lbo: int, sbo: int, mn: int, k: int) -> int:
    """The table "Canonical Layouts", offsets in bytes."""
    t = 16 // size
    x = {0: 1, 32: 2, 64: 4, 128: 8}[swizzle]
    if major == "K":
        across = ((t, 0), (size, lbo if swizzle == 0 else t * size))
        return cute((8, 0), (x * t * size, sbo), mn) + cute(*across, k)
    outer, inner = (lbo, sbo) if swizzle else (sbo, lbo)
    return cute((t, x, 0), (size, t * size, outer), mn) + cute((8, 0), (x * t * size, inner), k)


@given(
    st.sampled_from(DTYPES),
    st.sampled_from(SWIZZLES),
    st.sampled_from(["K", "MN"]),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 3),
    st.data(),
)
def test_a_descriptor_addresses_the_elements_of_its_window(
    dtype: DType, swizzle: int, major: Major, groups: int, panels: int, extra: int, data: st.DataObject
) -> None:
    """The canonical layout with the offsets of the descriptor finds every element where the buffer has it."""
    columns = (swizzle or 16) // dtype.bytes
    rows = 8 * groups
    shape = (3, panels, rows + 8 * extra, columns)
    found = matrix_descriptor(window(dtype, shape, swizzle, (panels, rows, columns)), major)
    if isinstance(found, Illegal):
        depth = panels * columns if major == "K" else rows
        assert depth * dtype.bytes % 32
        return
    row = data.draw(st.integers(0, rows - 1))
    column = data.draw(st.integers(0, panels * columns - 1))
    mn, k = (row, column) if major == "K" else (column, row)
    slot, first = 1, 8 * extra
    start = row_major(shape, (slot, 0, first, 0)) * dtype.bytes
    panel, inside = divmod(column, columns)
    element = row_major(shape, (slot, panel, first + row, inside)) * dtype.bytes
    assert start + found.offset(mn, k) == element
    if major == "K" and swizzle:
        # The table speaks of one span: each of the panels is an operand of its own.
        step = k // columns * columns
        at = (
            start + found.ahead(step) + canonical(major, swizzle, dtype.bytes, 16, found.stride, mn, k - step)
        )
    else:
        at = start + canonical(major, swizzle, dtype.bytes, found.leading, found.stride, mn, k)
    assert at == element


@given(st.sampled_from([32, 64, 128]), st.integers(0, 2), st.sampled_from(DTYPES))
def test_steps_of_k_inside_a_span_stay_under_its_swizzle(span: int, group: int, dtype: DType) -> None:
    """The swizzle is applied to the sum: a start moved along k still finds the chunks where they lie."""
    columns = span // dtype.bytes
    found = matrix_descriptor(window(dtype, (64, columns), span, (32, columns)), "K")
    assert isinstance(found, Descriptor)
    for k in range(0, columns, 32 // dtype.bytes):
        start = group * 8 * span + found.ahead(k)
        for mn in range(32):
            address = swizzle_offset(start + found.offset(mn, 0), span)
            assert address == swizzle_offset((group * 8 + mn) * span + k * dtype.bytes, span)


def test_fields_stand_where_the_manual_says() -> None:
    found = matrix_descriptor(window(DType.bf16, (2, 4, 128, 64), 128, (4, 64, 64)), "MN")
    assert found == Descriptor("MN", 128, 2, 256, 64, 128 * 128, 1024, 128 * 128)
    assert isinstance(found, Descriptor)
    assert (found.wgmma_bits >> 16) & 0x3FFF == 1024
    assert (found.wgmma_bits >> 32) & 0x3FFF == 64
    assert found.wgmma_bits >> 62 == 1
    assert found.tcgen05_bits >> 61 == 2
    assert (found.tcgen05_bits >> 46) & 7 == 1
    assert found.tcgen05_bits & 0xFFFFFFFF == found.wgmma_bits & 0xFFFFFFFF
    assert found.row_alignment == 1024
    assert found.ahead(16) == 2048


REFUSED = [
    ("rows of two spans", (64, 128), 128, (64, 64), "K", "one span"),
    ("plain rows", (64, 64), 0, (64, 64), "K", "core matrices"),
    ("a single core matrix", (64, 8), 0, (64, 8), "K", "multiple of 16"),
    ("half a group", (64, 64), 128, (12, 64), "K", "groups of 8"),
    ("part of a row", (64, 64), 128, (64, 32), "MN", "taken whole"),
    ("a row", (64, 64), 128, (64,), "K", "rows x columns"),
    ("a step too short", (64, 64), 128, (64, 24), "K", "multiple of 16"),
]


@pytest.mark.parametrize(("shape", "swizzle", "size", "major", "reason"), [r[1:] for r in REFUSED])
def test_refusals_say_why(
    shape: tuple[int, ...], swizzle: int, size: tuple[int, ...], major: Major, reason: str
) -> None:
    found = matrix_descriptor(window(DType.bf16, shape, swizzle, size), major)
    assert isinstance(found, Illegal)
    assert reason in found.reason


def test_the_other_major_exists_for_narrow_elements_only() -> None:
    assert major_refusal("wgmma", DType.bf16, "MN") == ""
    assert major_refusal("tcgen05", DType.e4m3, "MN") == ""
    assert "16-bit" in major_refusal("wgmma", DType.e4m3, "MN")
    assert "f32" in major_refusal("tcgen05", DType.f32, "MN")
    assert major_refusal("wgmma", DType.f32, "K") == ""
