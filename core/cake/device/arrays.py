"""Arrays on their way between processes: `.npy` files of plain dtypes, whatever the element type.

numpy's format does not know bfloat16 and the 8-bit floats; they travel as unsigned integers of their size,
and the reader, who knows the dtype from the launch plan, views them back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cake.ir.types import DType

Array = np.ndarray[Any, Any]

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of an element type by its name in kernel text; KeyError for another."""
    try:
        return DType(name).numpy
    except ValueError:
        raise KeyError(name) from None


def bits(array: Array) -> Array:
    """The same bytes as unsigned integers, one an element."""
    return np.ascontiguousarray(array).view(_BITS[array.dtype.itemsize])


def save(path: Path, array: Array) -> None:
    """Write `array` of any element type."""
    plain = array if array.dtype.kind in "fiu" and array.dtype.isbuiltin == 1 else bits(array)
    np.save(path, np.ascontiguousarray(plain), allow_pickle=False)


def load(path: Path, dtype: str) -> Array:
    """Read an array of element type `dtype`. Raises ValueError where the file holds another size."""
    array = np.load(path, allow_pickle=False)
    wanted = numpy_dtype(dtype)
    if array.dtype == wanted:
        return np.asarray(array)
    if array.dtype.itemsize != wanted.itemsize:
        raise ValueError(f"{path} holds {array.dtype}, expected {dtype}")
    return np.asarray(array.view(wanted))
