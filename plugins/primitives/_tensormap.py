"""Tensor maps in memory: what a row of words must be, and how the machine keeps a map in it.

The hardware's encoding is its own. On the machine a map is its part of the tensor (where it begins, then its
extents, an axis a word), then the box and the swizzle that it was made for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cake.ir.types import Buffer, DType
from cake.kinds.primitive import Memory, Site
from cake.machine.effects import Region

Array = np.ndarray[Any, Any]

WORDS = 32
BYTES = 128


def check_map(site: Site, name: str) -> None:
    """Refuse what is no row of 32 words, or lies in an input."""
    window = site.region(name)
    if window.dtype is not DType.u32 or window.shape != (WORDS,) or window.buffer.shape[-1] != WORDS:
        found = f"{list(window.shape)} of {window.dtype.value}"
        raise site.refuse(name, f"a tensor map is a row of [u32, {WORDS}], this is {found}")
    if window.buffer.space == "global" and not window.buffer.output:
        raise site.refuse(name, f"`{window.buffer.name}` is an input (Global); maps are made in a GlobalOut")


def encoded(buffer: Buffer, box: tuple[int, ...], swizzle: int) -> Array:
    """The map of a whole tensor."""
    words = np.zeros(WORDS, np.uint32)
    words[: 3 * len(box) + 1] = [*(0 for _ in box), *buffer.shape, *box, swizzle]
    return words


def replaced(words: Array, start: tuple[int, ...], extents: tuple[int, ...]) -> Array:
    """The map with another part."""
    out = words.copy()
    out[: 2 * len(start)] = [*start, *extents]
    return out


def read_through(memory: Memory, map_: Region, window: Region, swizzle: int) -> Array | None:
    """What a load of `window` by the map brings, zeros outside its part; None where the map was made for
    another box or swizzle, so that the bytes end up elsewhere."""
    words = [int(word) for word in np.asarray(memory.read(map_)).reshape(-1)]
    rank = len(window.size)
    start, extents, box = (words[rank * i : rank * (i + 1)] for i in range(3))
    if tuple(box) != window.size or words[3 * rank] != swizzle:
        return None
    out = np.zeros(window.size, window.buffer.dtype.numpy)
    inside = [
        (max(0, at), min(at + size, extent))
        for at, size, extent in zip(window.start, window.size, extents, strict=True)
    ]
    if all(low < high for low, high in inside):
        at = tuple(base + low for base, (low, _) in zip(start, inside, strict=True))
        size = tuple(high - low for low, high in inside)
        into = tuple(
            slice(low - first, high - first) for (low, high), first in zip(inside, window.start, strict=True)
        )
        out[into] = memory.read(Region(window.buffer, at, size))
    return out
