"""Rows: one-dimensional windows that the threads of a role hold as vectors. Shared by load and store."""

from __future__ import annotations

from dataclasses import replace

from cake.codegen.pieces import ACCESS
from cake.ir.arch import number
from cake.ir.layouts import LANES, Vector
from cake.ir.types import RegionType
from cake.kinds.primitive import Op, Site, Window, Writer
from cake.machine.effects import Region

WIDE_SINCE = 100
"""sm number from which a thread moves 32 bytes of global memory at once."""


def row_axis(size: tuple[int, ...]) -> int:
    """The axis along which a one-dimensional window runs."""
    return max(range(len(size)), key=lambda axis: (size[axis] > 1, axis))


def row_parts(op: Op, layout: Vector, name: str) -> list[tuple[int, Region]]:
    """What this warp holds of the row `name`: per chunk, its number and the real elements' window."""
    region = op.region(name)
    axis, width = row_axis(region.size), LANES * layout.width
    length = region.size[axis]
    out = []
    for chunk in range(layout.chunks((length,))):
        first = chunk * layout.stride + op.warp * width
        if first < length:
            at, size = [0] * len(region.size), list(region.size)
            at[axis], size[axis] = first, min(width, length - first)
            out.append((chunk, region.sub(tuple(at), tuple(size))))
    return out


def clipped(region: Region) -> Region:
    """The window without what sticks out of the tensor at the ends of the row."""
    axis, start, size = row_axis(region.size), list(region.start), list(region.size)
    start[axis], size[axis] = region.box[axis]
    return replace(region, start=tuple(start), size=tuple(size))


def beyond(out: Writer, window: Window, place: str) -> str:
    """C++ condition: element `place` of the row lies inside the tensor; "true" where that is known."""
    axis = row_axis(window.size)
    origin, index = ["0"] * len(window.size), ["0"] * len(window.size)
    origin[axis], index[axis] = window.origin[axis], place
    return out.in_bounds(replace(window, origin=tuple(origin)), index)


def check_vector(site: Site, window: RegionType, width: int, *, clips: bool) -> None:
    """Refuse a row access of `width` neighbouring elements that no instruction makes; `clips`: what sticks
    out is left, vectors at a time."""
    size = width * window.dtype.bytes
    wide = window.buffer.space == "global" and number(site.arch) >= WIDE_SINCE
    if width < 1 or size not in ACCESS or (size > 16 and not wide):
        most = "1, 2, 4, 8, 16 or 32" if wide else "1, 2, 4, 8 or 16"
        message = f"one access moves {most} bytes, not {width} x {window.dtype.bytes}"
        raise site.refuse("vector", message)
    if window.dtype.bytes == 1 and width % 4:
        raise site.refuse("vector", f"{window.dtype.value} elements move four at once at least")
    if width == 1:
        return
    axis = row_axis(window.window)
    if axis != len(window.window) - 1:
        raise site.refuse(
            "vector", "the window runs across rows: its elements are not neighbours", help="vector=1"
        )
    length, pitch = window.shape[0], window.buffer.shape[-1]
    many = len(window.buffer.shape) > 1 or (clips and length != pitch)
    if length % width or (many and pitch % width):
        message = f"rows of {length} elements at a pitch of {pitch} are not whole vectors of {width}"
        raise site.refuse("vector", message, help=f"add `require(... % {width} == 0)` or lower `vector`")
