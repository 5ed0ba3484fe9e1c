"""Where a byte of a buffer lies in shared memory, and which accesses its banks serve at once.

Sources: PTX ISA, "Swizzling Modes"; CUDA C++ Programming Guide, "Shared Memory" (32 banks of 4 bytes).
"""

from __future__ import annotations

from cake.ir.layouts.registers import LANES

SWIZZLES = (0, 32, 64, 128)


def swizzle_offset(offset: int, swizzle: int) -> int:
    """Where the byte at `offset` of a buffer lies under a swizzle of 0, 32, 64 or 128 bytes.

    The 16-byte chunk index inside the span is xored with address bits 7 and up (PTX ISA, "Swizzling Modes");
    the buffer starts at a multiple of 8 spans of 128 bytes.
    """
    if swizzle == 0:
        return offset
    mask = swizzle // 16 - 1
    return offset ^ (((offset >> 7) & mask) << 4)


def bank_conflicts(addresses: list[int], width: int) -> int:
    """Extra shared-memory cycles of one warp access of `width` bytes a lane at byte `addresses`.

    Lanes are served in groups that move 128 bytes at once; within a group, different words in one of the
    32 four-byte banks take turns. 0 means conflict-free.
    """
    lanes = max(1, min(LANES, 128 // width))
    extra = 0
    for start in range(0, len(addresses), lanes):
        words: dict[int, set[int]] = {}
        for address in addresses[start : start + lanes]:
            for word in range(address // 4, (address + width + 3) // 4):
                words.setdefault(word % 32, set()).add(word)
        extra += max((len(w) for w in words.values()), default=1) - 1
    return extra
