"""Which windows an instruction can address: one function a question, None or the reason in words.

What depends on where a window starts at run time is an `Aligned` effect of its primitive; what the tensor
cores' descriptors can say is in `descriptors`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cake.ir.types import RegionType

CHUNK = 16
"""Bytes that one lane of ldmatrix and stmatrix names, and the granule of the copy engine."""
MATRIX = 8
"""Rows and columns of a matrix of ldmatrix and stmatrix."""
MAX_BOX = 256
"""Elements of a tensor map's box along one axis."""
MAX_AXES = 5
"""Axes of a tensor map."""


@dataclass(frozen=True, slots=True)
class Illegal:
    """Why a window is no operand, in words, and what to do."""

    reason: str
    help: str = ""


def matrix_rows(window: RegionType, sizes: tuple[int, ...] = (2,)) -> Illegal | None:
    """8 x 8 matrices of 16-bit elements in the last two axes, for ldmatrix and stmatrix: each row is 16
    contiguous bytes at a multiple of 16 (PTX ISA, "ldmatrix", "stmatrix"). Elements of other `sizes` in bytes
    move as well, where the rows stay rows."""
    buffer, size = window.buffer, window.dtype.bytes
    if size not in sizes:
        return Illegal(f"8 x 8 matrices hold 16-bit elements, this is {window.dtype.value}")
    if len(window.shape) < 2 or window.window[-2:] != window.shape[-2:]:
        return Illegal(f"matrices are rows x columns on the last two axes of `{buffer.name}`")
    pitch, columns = buffer.shape[-1] * size, CHUNK // size
    if pitch % CHUNK:
        return Illegal(f"rows of `{buffer.name}` are {pitch} bytes, not a multiple of {CHUNK}")
    if window.shape[-1] % columns:
        message = f"columns come in groups of {columns}, a row of this window has {window.shape[-1]}"
        return Illegal(message)
    if window.shape[-2] % MATRIX:
        return Illegal(f"rows come in eights, this window has {window.shape[-2]}")
    return None


def bulk_piece(window: RegionType) -> Illegal | None:
    """What the copy engine fills or reads at once: one contiguous piece of whole rows, each as wide as the
    swizzle's span (PTX ISA, "Swizzling Modes": the inner extent of the box fits the span)."""
    shape, span = window.buffer.shape, window.buffer.swizzle
    partial = [axis for axis, extent in enumerate(window.window) if extent != shape[axis]]
    free = partial[-1] if partial else 0
    inside_row = bool(partial) and free == len(shape) - 1 and len(shape) > 1
    if any(extent != 1 for extent in window.window[:free]) or inside_row:
        return Illegal("the shared window is not one contiguous piece of whole rows")
    row = shape[-1] * window.dtype.bytes
    if span and row != span:
        reason = f"rows of {row} bytes with a swizzle of {span}: the box is the swizzle span wide"
        return Illegal(reason, f"split the buffer into panels of {span} bytes")
    return None


def box(window: RegionType) -> Illegal | None:
    """The box of a tensor map over a global tensor (CUDA Driver API, cuTensorMapEncodeTiled)."""
    name, size = window.buffer.name, window.dtype.bytes
    if len(window.window) > MAX_AXES:
        return Illegal(f"a tensor map has at most {MAX_AXES} axes, `{name}` has {len(window.window)}")
    if max(window.window) > MAX_BOX:
        return Illegal(f"a box has at most {MAX_BOX} elements an axis, here {max(window.window)}")
    if window.window[-1] * size % CHUNK:
        return Illegal(f"the box is {window.window[-1] * size} bytes wide, not a multiple of {CHUNK}")
    return None


def contiguous(window: RegionType) -> Illegal | None:
    """One piece of bytes, of 16 and multiples, for bulk copies (PTX ISA, "cp.async.bulk")."""
    shape, sizes = window.buffer.shape, window.window
    first = next((axis for axis, size in enumerate(sizes) if size != 1), len(sizes) - 1)
    if any(size != extent for size, extent in zip(sizes[first + 1 :], shape[first + 1 :], strict=True)):
        return Illegal(f"the window of `{window.buffer.name}` is not one contiguous piece")
    if window.bytes % CHUNK:
        return Illegal(f"the window has {window.bytes} bytes, not a multiple of {CHUNK}")
    return None


def stride(window: RegionType) -> Illegal | None:
    """Every axis of the tensor but the last lies a multiple of 16 bytes apart (cuTensorMapEncodeTiled)."""
    shape, size = window.buffer.shape, window.dtype.bytes
    apart = size
    for axis in range(len(shape) - 1, 0, -1):
        apart *= shape[axis]
        if apart % CHUNK:
            tensor = f"axis {axis - 1} of `{window.buffer.name}`"
            reason = f"{tensor} has a stride of {apart} bytes, not a multiple of {CHUNK}"
            return Illegal(reason, f"add `require(... % {CHUNK // size} == 0)` for its last axis")
    return None
