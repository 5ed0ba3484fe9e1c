"""Shared buffers over the same bytes: who conflicts with whom, whose values are gone, one storage for all.

Bytes are compared where they lie, swizzles applied. A value written through one buffer is a value of another
only for elements of the same dtype under the same swizzle; any other that loses a byte holds none thereafter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cake.ir.instance import Instance
from cake.ir.types import Buffer
from cake.machine.effects import Box
from cake.machine.shadow import Knowledge, Record, Shadow

if TYPE_CHECKING:
    from cake.machine.engine import Engine

Array = np.ndarray[Any, Any]
Aliases = Mapping[str, tuple[Buffer, ...]]
"""By buffer, the others that share bytes with it. Buffers on their own have no entry."""


def aliases(instance: Instance) -> Aliases:
    shared = [b for b in instance.buffers.values() if b.space == "shared"]
    found = {b.name: tuple(o for o in shared if o is not b and _meet(b, o)) for b in shared}
    return {name: others for name, others in found.items() if others}


def _meet(a: Buffer, b: Buffer) -> bool:
    return a.offset < b.offset + b.bytes and b.offset < a.offset + a.bytes


@lru_cache(maxsize=64)
def places(buffer: Buffer) -> Array:
    """The byte of the CTA's shared memory at which each element lies; shape of the buffer."""
    offset = np.arange(buffer.bytes // buffer.dtype.bytes, dtype=np.int64) * buffer.dtype.bytes
    if buffer.swizzle:
        offset ^= ((offset >> 7) & (buffer.swizzle // 16 - 1)) << 4
    return (offset + buffer.offset).reshape(buffer.shape)


@lru_cache(maxsize=1024)
def footprint(buffer: Buffer, box: Box) -> int:
    """The bytes of an access, one bit each, from the first byte of shared memory on."""
    return _bits(places(buffer)[tuple(slice(a, a + n) for a, n in box)], buffer.dtype.bytes)


def _bits(first: Array, size: int) -> int:
    """The bytes of elements of `size` bytes that begin at `first`."""
    if not first.size:
        return 0
    mask = np.zeros(int(first.max()) + size, bool)
    for byte in range(size):
        mask[first.reshape(-1) + byte] = True
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


# --- facts ------------------------------------------------------------------------------------------------


def conflicts(
    shadows: Mapping[str, Shadow], others: tuple[Buffer, ...], buffer: Buffer, new: Record, known: Knowledge
) -> list[tuple[Record, Buffer]]:
    """Earlier accesses through other buffers to bytes of `new` that are not known to come before it."""
    mine = footprint(buffer, new.box)
    out: list[tuple[Record, Buffer]] = []
    for other in others:

        def meets(old: Record, other: Buffer = other) -> bool:
            return bool(footprint(other, old.box) & mine)

        out += [(old, other) for old in shadows[other.name].conflicts(new, known, meets)]
    return out


def written(shadows: Mapping[str, Shadow], others: tuple[Buffer, ...], buffer: Buffer, box: Box) -> None:
    """After a write to `box`: earlier accesses to all of its bytes are settled, and values of other buffers
    are gone, or are theirs where dtype and swizzle are the same."""
    mine = footprint(buffer, box)
    touched = _mask(mine, max(b.offset + b.bytes for b in (buffer, *others)))
    for other in others:

        def covered(old: Record, other: Buffer = other) -> bool:
            return not footprint(other, old.box) & ~mine

        shadow = shadows[other.name]
        shadow.settle(covered)
        same = other.dtype is buffer.dtype and other.swizzle == buffer.swizzle
        first = places(other)
        lost = touched[first]
        for byte in range(1, other.dtype.bytes):
            lost |= touched[first + byte]
        shadow.overwrite(lost, same)


def _mask(bits: int, size: int) -> Array:
    raw = bits.to_bytes(-(-size // 8), "little")
    return np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little").astype(bool)


def displaced(engine: Engine, cta: int, buffer: Buffer, box: Box) -> tuple[Record, Buffer] | None:
    """The latest write through another buffer to bytes of `box` that hold no value of `buffer` any more."""
    others = engine.aliases.get(buffer.name, ())
    shadow = engine.shadows[cta][buffer.name]
    if not others or shadow.written is None:
        return None
    window = tuple(slice(a, a + n) for a, n in box)
    missing = _bits(places(buffer)[window][~shadow.written[window]], buffer.dtype.bytes)
    found = [
        (old, other)
        for other in others
        for records in engine.shadows[cta][other.name].slices.values()
        for old in records
        if old.write and footprint(other, old.box) & missing
    ]
    return found[-1] if found else None


# --- values -----------------------------------------------------------------------------------------------


def poisoned(buffer: Buffer) -> Array:
    """An array in which nothing is a value that a kernel computes."""
    if buffer.dtype.is_float:
        return np.full(buffer.shape, np.nan, buffer.dtype.numpy)
    return np.full(buffer.shape, np.iinfo(np.int32).min, np.int64).astype(buffer.dtype.numpy)


def fresh_shared(instance: Instance) -> dict[str, Array]:
    """The shared and tensor memory of one CTA, poisoned. Buffers that share bytes are flat views of one
    storage, in which `places_of` finds their elements."""
    shared = {b.name: b for b in instance.buffers.values() if b.space != "global"}
    overlaid = aliases(instance)
    size = max((shared[name].offset + shared[name].bytes for name in overlaid), default=0)
    # All bits set are a NaN in every float format.
    storage = np.full(-(-size // 16) * 16, 0xFF, np.uint8)
    return {
        name: storage.view(buffer.dtype.numpy) if name in overlaid else poisoned(buffer)
        for name, buffer in shared.items()
    }


def places_of(instance: Instance) -> dict[str, Array]:
    """Where the elements of buffers that share bytes lie in their flat view; nothing for others."""
    buffers = instance.buffers
    return {name: places(buffers[name]) // buffers[name].dtype.bytes for name in aliases(instance)}
