"""Turns at the shared-memory port: of rows held as vectors, and of 8 x 8 matrices. Shared by load, store,
ldmatrix and stmatrix.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from cake.ir.layouts import LANES, Traffic, Vector, traffic
from cake.ir.layouts.legality import CHUNK, MATRIX
from cake.kinds.primitive import Op
from cake.machine.effects import Region
from cake_plugins.primitives._rows import row_axis

PERIOD = 1024
"""Bytes after which banks and swizzles repeat."""


def matrix_traffic(region: Region) -> Traffic:
    """All 8 x 8 matrices of 16-bit elements in the last two axes of `region`, panel by panel."""
    row, column = region.start[-2:]
    *panels, rows, columns = region.size
    size, shape = region.buffer.dtype.bytes, region.buffer.shape
    pitch = shape[-1] * size
    last = len(shape) - 1
    first = _base(region, last - 1, last)
    bases = [first]
    if panels and panels[-1] > 1:
        bases = [(first + panel * shape[-2] * pitch) % PERIOD for panel in range(panels[-1])]
    return _matrices(tuple(bases), pitch, region.buffer.swizzle, row, column * size, rows, columns * size)


@lru_cache(maxsize=4096)
def _matrices(
    bases: tuple[int, ...], pitch: int, swizzle: int, row: int, byte: int, rows: int, width: int
) -> Traffic:
    accesses = [
        tuple((row + at + i, byte + chunk) for i in range(MATRIX))
        for at in range(0, rows, MATRIX)
        for chunk in range(0, width, CHUNK)
    ]
    panels = [traffic(accesses, CHUNK, pitch=pitch, swizzle=swizzle, base=base) for base in bases]
    worst = max(panels, key=lambda t: t.wavefronts - t.least)
    turns, least = sum(t.wavefronts for t in panels), sum(t.least for t in panels)
    return Traffic(turns, least, CHUNK, worst.lanes)


def row_traffic(op: Op, layout: Vector) -> Traffic:
    """The row `window` of shared memory as the warp's lanes hold it: one access a chunk."""
    region = op.region("window")
    axis, size = row_axis(region.size), region.buffer.dtype.bytes
    step = size * prod(region.buffer.shape[axis + 1 :])
    held = (region.size[axis], layout.width, layout.stride, layout.chunks((region.size[axis],)), op.warp)
    return _row(_base(region, axis), step, size, region.buffer.swizzle, region.start[axis], *held)


@lru_cache(maxsize=4096)
def _row(
    base: int,
    step: int,
    size: int,
    swizzle: int,
    start: int,
    length: int,
    width: int,
    stride: int,
    chunks: int,
    warp: int,
) -> Traffic:
    """Elements of `size` bytes, `step` bytes apart: each is a row of its own where that is more."""
    accesses = []
    for chunk in range(chunks):
        held = [chunk * stride + (warp * LANES + lane) * width for lane in range(LANES)]
        places = [(start + at, 0) if step > size else (0, (start + at) * size) for at in held]
        accesses.append(tuple(p if at < length else None for at, p in zip(held, places, strict=True)))
    return traffic(accesses, width * size, pitch=step, swizzle=swizzle, base=base)


def _base(region: Region, *moving: int) -> int:
    """Where the window starts, up to the period, with the axes `moving` at 0."""
    at = 0
    for axis, extent in enumerate(region.buffer.shape):
        at = at * extent + (0 if axis in moving else region.start[axis])
    return at * region.buffer.dtype.bytes % PERIOD
