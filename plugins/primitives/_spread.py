"""Fragments side by side: element by element, or a value for each row or column beside a tile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cake.codegen.pieces import packing
from cake.ir.layouts import Accumulator, ColumnsOf, Replicated, RowsOf
from cake.ir.layouts.conversions import MOVES, meeting
from cake.ir.types import INT, DType, FragmentType
from cake.kinds.primitive import Op, Registers, Site

Array = np.ndarray[Any, Any]


def single(kind: FragmentType) -> bool:
    """One value that every lane holds."""
    return isinstance(kind.layout, Replicated) and kind.shape == ()


def beside(part: FragmentType, whole: FragmentType) -> bool:
    """Whether `part` goes with the elements of `whole`: the same ones, its rows or columns, or one value."""
    if single(part) or (part.shape == whole.shape and part.layout == whole.layout):
        return True
    match part.layout:
        case RowsOf(tile=tile):
            return whole.layout == tile and part.shape[0] == whole.shape[0]
        case ColumnsOf(tile=tile):
            return whole.layout == tile and part.shape[0] == whole.shape[1]
    return False


def together(site: Site, names: Iterable[str]) -> FragmentType:
    """The widest of the operands that are fragments; refuses those that do not go with it."""
    kinds: Mapping[str, FragmentType] = {
        n: kind for n in names if isinstance(kind := site.operand(n).type, FragmentType)
    }
    if not kinds:
        message = f"`{site.call.name}` needs a fragment; numbers are combined by the compiler"
        raise site.refuse(None, message)
    whole = max(kinds.values(), key=lambda k: (not single(k), len(k.shape), k.registers))
    for name, kind in kinds.items():
        if not beside(kind, whole):
            a, b = (f"{list(k.shape)} in {k.layout.name}" for k in (kind, whole))
            help = ""
            if kind.shape == whole.shape:
                help = f"to meet, {MOVES[meeting(kind.layout, whole.layout, kind.shape)]}"
            raise site.refuse(name, f"the fragments differ: {a} and {b}", help=help)
    return whole


def same_dtype(site: Site, names: Iterable[str], dtypes: tuple[DType, ...], words: str) -> DType:
    """The dtype that the operands' fragments share, one of `dtypes`; integers take no fractions."""
    found: DType | None = None
    for name in names:
        kind = site.operand(name).type
        if not isinstance(kind, FragmentType):
            continue
        if kind.dtype not in dtypes:
            help = "cast(..., f32)" if kind.dtype.is_float else ""
            raise site.refuse(name, f"{words}, this is {kind.dtype.value}", help=help)
        if found is not None and kind.dtype is not found:
            message = f"`{site.call.name}` of {found.value} and {kind.dtype.value}"
            raise site.refuse(name, message, help=f"cast(..., {found.value})")
        found = kind.dtype
    assert found is not None
    for name in names:
        kind = site.operand(name).type
        if not found.is_float and not isinstance(kind, FragmentType) and kind != INT:
            raise site.refuse(name, f"a number with a fraction beside a fragment of {found.value}")
    return found


def values(op: Op, name: str, whole: FragmentType) -> Array:
    """The operand's values of this warp, shaped to go with `whole`."""
    value = op.args[name]
    array = getattr(value, "array", None)
    if array is None:
        return np.asarray(value)
    kind = op.site.fragment(name)
    if len(kind.shape) == 1 and len(whole.shape) == 2:
        return np.asarray(array[:, None] if isinstance(kind.layout, RowsOf) else array[None, :])
    return np.asarray(array)


def side(operand: Registers | str, whole: FragmentType, ctype: str = "float") -> str:
    """C++ text of an operand inside the loop over register `i_` of `whole`, one element a register."""
    if not isinstance(operand, Registers):
        return f"static_cast<{ctype}>({operand})"
    part = operand.type
    if single(part) and not single(whole):
        return f"{operand.name}[0]"
    index = "i_"
    if part.layout != whole.layout:
        index = _index(part, whole)
    assert packing(part.dtype) == 1
    return f"{operand.name}[{index}]"


def _index(part: FragmentType, whole: FragmentType) -> str:
    """Registers of an accumulator: pairs of columns; pairs alternate between a row and the one 8 below."""
    rows = isinstance(part.layout, RowsOf)
    if not isinstance(whole.layout, Accumulator):
        return "0" if rows else "i_"
    pairs = whole.shape[1] // 4
    return f"i_ / {2 * pairs} * 2 + i_ / 2 % 2" if rows else f"i_ / 2 % {pairs} / 2 * 2 + i_ % 2"
