"""Where a byte of a buffer lies in shared memory, and how often the banks take turns over an access.

Sources: PTX ISA, "Swizzling Modes"; CUDA C++ Programming Guide, "Shared Memory" (32 banks of 4 bytes).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cake.ir.layouts.linear import Linear
from cake.ir.layouts.ownership import LANES, is_power

SWIZZLES = (0, 32, 64, 128)
WORD = 4
BANKS = 32
PATTERN_BITS = 10
"""Swizzle patterns repeat every 1024 bytes."""


def swizzle_offset(offset: int, swizzle: int) -> int:
    """Where the byte at `offset` of a buffer lies under a swizzle of 0, 32, 64 or 128 bytes.

    The 16-byte chunk index inside the span is xored with address bits 7 and up (PTX ISA, "Swizzling Modes");
    the buffer starts at a multiple of 8 spans of 128 bytes.
    """
    if swizzle == 0:
        return offset
    mask = swizzle // 16 - 1
    return offset ^ (((offset >> 7) & mask) << 4)


def offset_map(shape: Sequence[int], element: int, swizzle: int) -> Linear | None:
    """From the bits of an element's coordinates (last axis lowest) to the byte at which it starts.

    Linear where all extents but the first are powers of two (the first is padded to one); None elsewhere:
    rows of other pitches are added up, with carries, before the swizzle."""
    if not all(map(is_power, shape[1:])):
        return None
    size = sum(max(0, extent - 1).bit_length() for extent in shape)
    columns = tuple(swizzle_offset(element << bit, swizzle) for bit in range(size))
    return Linear(columns, max(size + element.bit_length() - 1, PATTERN_BITS))


def wavefronts(addresses: Sequence[int | None], width: int) -> int:
    """Turns that the shared-memory port takes over one access of a warp: lane i moves `width` bytes at
    `addresses[i]`, None where it stays idle.

    Lanes are served in phases that move at most 128 bytes: all at once up to 4 bytes a lane, half a warp at a
    time for 8, a quarter for 16. Within a phase each bank serves one of its words a turn, to all who want it.
    Measured on an H200 (a chain of loads, 2 cycles a turn): exact for up to 4 bytes a lane, for ldmatrix, and
    for wider lanes at different addresses. Lanes that want the *same* 8 or 16 bytes are served together
    across phases, in fewer turns than counted here; no access of a primitive does that.
    """
    lanes = phase(width)
    turns = 0
    for start in range(0, len(addresses), lanes):
        words: dict[int, set[int]] = {}
        for address in addresses[start : start + lanes]:
            if address is not None:
                for word in range(address // WORD, (address + width - 1) // WORD + 1):
                    words.setdefault(word % BANKS, set()).add(word)
        turns += max((len(w) for w in words.values()), default=0)
    return turns


Lane = tuple[int, int]
"""What a lane touches of a buffer: row, and byte in the row, before the swizzle."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one instruction of a warp asks of the shared-memory port: `wavefronts` turns, where `least` would
    do without bank conflicts. `lanes` is the access with the most of them, `width` bytes a lane."""

    wavefronts: int
    least: int
    width: int
    lanes: tuple[Lane | None, ...]


def traffic(
    accesses: Iterable[tuple[Lane | None, ...]], width: int, *, pitch: int, swizzle: int, base: int = 0
) -> Traffic:
    """The turns of `accesses`, one after the other, to rows `pitch` bytes apart from byte `base` on."""
    total = least = 0
    worst: tuple[int, tuple[Lane | None, ...]] = (-1, ())
    for lanes in accesses:
        addresses = [
            None if lane is None else swizzle_offset(base + lane[0] * pitch + lane[1], swizzle)
            for lane in lanes
        ]
        turns, fewest = wavefronts(addresses, width), least_wavefronts(addresses, width)
        total, least = total + turns, least + fewest
        if turns - fewest > worst[0]:
            worst = (turns - fewest, lanes)
    return Traffic(total, least, width, worst[1])


def phase(width: int) -> int:
    """Lanes served together where each moves `width` bytes."""
    return max(1, min(LANES, BANKS * WORD // width))


def least_wavefronts(addresses: Sequence[int | None], width: int) -> int:
    """The turns of the same access without bank conflicts: one for each phase with a lane at work."""
    lanes = phase(width)
    starts = range(0, len(addresses), lanes)
    return sum(any(a is not None for a in addresses[s : s + lanes]) for s in starts)
