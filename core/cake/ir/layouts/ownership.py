"""Who holds what of a fragment: a linear map from register and lane bits to a tile's element, repeated.

The tile's extents are powers of two. What an author's extents ask for beyond it, powers of two or not, is
repetition: register numbers count tiles in a mixed radix, and each warp has its own tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cake.ir.layouts.linear import Linear

LANES = 32
LANE_BITS = 5


@dataclass(frozen=True, slots=True)
class Tile:
    """`map` sends (register bits, then lane bits) to the element of a tile of `extents`, packed with the last
    axis in the low bits."""

    extents: tuple[int, ...]
    registers: int
    """Bits of the register's number."""
    map: Linear


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` copies, `step` elements apart along `axis`."""

    count: int
    axis: int = 0
    step: int = 0


@dataclass(frozen=True, slots=True)
class Ownership:
    """The elements of `shape` that each register of each lane of each warp holds. `repeats` of the tile along
    the register's number, fastest first; `warps` along the warp's."""

    shape: tuple[int, ...]
    tile: Tile
    repeats: tuple[Repeat, ...]
    warps: Repeat

    @property
    def registers(self) -> int:
        """Elements a thread holds."""
        count = 1 << self.tile.registers
        for repeat in self.repeats:
            count *= repeat.count
        return count

    def coordinate(self, warp: int, lane: int, register: int) -> tuple[int, ...]:
        """The element, one index an axis; beyond `shape` where the register is a phantom."""
        bits = self.tile.registers
        at = unpack(self.tile.map(register & (1 << bits) - 1 | lane << bits), self.tile.extents)
        number = register >> bits
        for repeat in self.repeats:
            number, copy = divmod(number, repeat.count)
            at[repeat.axis] += copy * repeat.step
        if self.warps.step:
            at[self.warps.axis] += warp * self.warps.step
        return tuple(at)

    def linear(self) -> Linear | None:
        """One linear map from (register, lane, warp) bits to the packed element of `shape` padded to powers
        of two. None where a number of copies is none, or copies do not fall on bits of their own."""
        taken = list(self.tile.extents)
        for repeat in sorted((*self.repeats, self.warps), key=lambda r: r.step):
            if not is_power(repeat.count):
                return None
            if repeat.count > 1 and repeat.step:
                if not is_power(repeat.step) or repeat.step < taken[repeat.axis]:
                    return None
                taken[repeat.axis] = repeat.step * repeat.count
        extents = tuple(max(a, padded(b)) for a, b in zip(taken, self.shape, strict=True))
        columns = [pack(unpack(c, self.tile.extents), extents) for c in self.tile.map.columns]
        registers, lanes = columns[: self.tile.registers], columns[self.tile.registers :]
        copies = [bit for repeat in self.repeats for bit in _bits(repeat, extents)]
        size = sum(extent.bit_length() - 1 for extent in extents)
        return Linear((*registers, *copies, *lanes, *_bits(self.warps, extents)), size)


def tile(
    extents: tuple[int, ...], registers: Sequence[tuple[int, ...]], lanes: Sequence[tuple[int, ...]]
) -> Tile:
    """The tile in which each bit of the register's number, and of the lane's, moves as far as stated."""
    columns = tuple(pack(step, extents) for step in (*registers, *lanes))
    return Tile(extents, len(registers), Linear(columns, sum(e.bit_length() - 1 for e in extents)))


def pack(coordinate: Sequence[int], extents: Sequence[int]) -> int:
    """One number for an element of a tile whose extents are powers of two."""
    at = 0
    for index, extent in zip(coordinate, extents, strict=True):
        at = at << extent.bit_length() - 1 | index
    return at


def unpack(at: int, extents: Sequence[int]) -> list[int]:
    """The inverse of `pack`."""
    out = []
    for extent in reversed(extents):
        out.append(at & extent - 1)
        at >>= extent.bit_length() - 1
    return out[::-1]


def padded(extent: int) -> int:
    """The next power of two."""
    return 1 << max(0, extent - 1).bit_length()


def is_power(value: int) -> bool:
    return value > 0 and value & value - 1 == 0


def _bits(repeat: Repeat, extents: tuple[int, ...]) -> list[int]:
    """What each bit of a copy's number moves."""
    out = []
    for bit in range(repeat.count.bit_length() - 1):
        at = [0] * len(extents)
        if extents:
            at[repeat.axis] = repeat.step << bit
        out.append(pack(at, extents))
    return out
