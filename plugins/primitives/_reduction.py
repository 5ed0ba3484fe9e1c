"""Reductions of the copy engine: what it can do to elements of a dtype, and what comes of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from cake.ir.types import DType
from cake.kinds.primitive import Site

Array = np.ndarray[Any, Any]

_INTEGER = ("add", "min", "max", "and", "or", "xor")
OPERATIONS = {
    DType.f32: ("add",),
    DType.f16: ("add", "min", "max"),
    DType.bf16: ("add", "min", "max"),
    DType.i32: _INTEGER,
    DType.u32: _INTEGER,
}
_TYPES = {DType.f32: "f32", DType.f16: "f16", DType.bf16: "bf16", DType.i32: "s32", DType.u32: "u32"}
_NUMPY = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def check_reduction(site: Site, dtype: DType) -> None:
    """Refuse an `operation` that the copy engine cannot do (PTX ISA, "cp.reduce.async.bulk")."""
    word, able = site.text("operation"), OPERATIONS.get(dtype, ())
    if word not in able:
        words = ", ".join(f'"{name}"' for name in able) or "nothing"
        raise site.refuse("operation", f'the copy engine cannot "{word}" {dtype.value}, it can {words}')


def reduced(operation: str, held: Array, given: Array) -> Array:
    """What memory holds afterwards."""
    with np.errstate(all="ignore"):
        return np.asarray(_NUMPY[operation](held, given), held.dtype)


def suffix(operation: str, dtype: DType) -> str:
    """`.add.noftz.bf16`, as cp.reduce.async.bulk spells it."""
    if operation in ("and", "or", "xor"):
        return f".{operation}.b32"
    rounding = ".noftz" if operation == "add" and dtype in (DType.f16, DType.bf16) else ""
    return f".{operation}{rounding}.{_TYPES[dtype]}"
