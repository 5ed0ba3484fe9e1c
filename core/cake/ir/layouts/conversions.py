"""What it takes to bring a fragment from one layout to another.

Where both layouts are linear over F2 the answer is a question about spans: a thread finds an element among
its own registers if it lies in the span of the register bits, a warp if it lies in that of register and lane
bits. Elsewhere the same is asked of every element.
"""

from __future__ import annotations

from math import prod
from typing import Literal

from cake.ir.layouts.linear import Linear, basis, reduce
from cake.ir.layouts.ownership import LANE_BITS, LANES, Ownership
from cake.ir.layouts.registers import RegisterLayout, Replicated

Conversion = Literal["none", "in_thread", "shuffle", "shared"]
"""Nothing moves; registers of a thread are permuted; lanes of a warp exchange; warps exchange through shared
memory."""

MOVES: dict[Conversion, str] = {
    "none": "nothing moves",
    "in_thread": "each thread permutes its own registers",
    "shuffle": "lanes of a warp exchange elements by shuffles",
    "shared": "warps exchange elements: store one to shared memory and load it as the other is held",
}


def conversion(source: RegisterLayout, target: RegisterLayout, shape: tuple[int, ...]) -> Conversion:
    """The least that brings a tile of `shape` from `source` to `target`, both of which admit it."""
    if source == target:
        return "none"
    everywhere = isinstance(source, Replicated)
    if source.warps != target.warps and not everywhere:
        # The tile is held by other warps.
        return "shared"
    a, b = source.ownership(shape), target.ownership(shape)
    one, other = a.linear(), b.linear()
    if one is not None and other is not None and one.bits == other.bits and 1 << one.bits == prod(shape):
        return _by_spans(one, other, a, b)
    return _by_elements(a, b, everywhere)


def meeting(one: RegisterLayout, other: RegisterLayout, shape: tuple[int, ...]) -> Conversion:
    """The least that brings either of two fragments of `shape` to the layout of the other."""
    ways = (conversion(one, other, shape), conversion(other, one, shape))
    return min(ways, key=list(MOVES).index)


def _by_spans(one: Linear, other: Linear, a: Ownership, b: Ownership) -> Conversion:
    """Per bit of the target's index: where the source holds the element that it moves to."""
    first, second = a.registers.bit_length() - 1, b.registers.bit_length() - 1
    own = basis(one.columns[:first])
    warp = basis(one.columns[: first + LANE_BITS])
    fixed = one.columns[first:]
    moved = other.columns[second:]
    # Threads of the target stand at the same lane and warp of the source: only the difference must be found.
    apart = [m ^ (fixed[i] if i < len(fixed) else 0) for i, m in enumerate(moved)]
    wanted = (*other.columns[:second], *apart)
    if first == second and not any(apart) and one.columns[:first] == other.columns[:second]:
        return "none"
    if all(reduce(own, column) == 0 for column in wanted):
        return "in_thread"
    return "shuffle" if all(reduce(warp, column) == 0 for column in wanted) else "shared"


def _by_elements(a: Ownership, b: Ownership, everywhere: bool) -> Conversion:
    """By looking each element up; phantoms are no element."""
    threads = [
        [
            [a.coordinate(0 if everywhere else warp, lane, register) for register in range(a.registers)]
            for lane in range(LANES)
        ]
        for warp in range(b.warps.count)
    ]
    same = a.registers == b.registers
    worst: Conversion = "in_thread"
    for warp, lanes in enumerate(threads):
        anywhere = {element for held in lanes for element in held}
        for lane, held in enumerate(lanes):
            own = set(held)
            for register in range(b.registers):
                element = b.coordinate(warp, lane, register)
                if any(index >= extent for index, extent in zip(element, b.shape, strict=True)):
                    continue
                same = same and held[register] == element
                if element not in anywhere:
                    return "shared"
                if element not in own:
                    worst = "shuffle"
    return "none" if same and worst == "in_thread" else worst
