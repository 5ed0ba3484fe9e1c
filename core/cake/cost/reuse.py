"""What device memory must deliver: how much of what CTAs ask for do they ask for together?

The CTAs of one wave are looked at on the first pass of their loops: windows of a tensor that several of them
read come from device memory once and from L2 for the others. Data that outlives a wave is kept only if all
tensors fit the usable part of L2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from cake.ir.evaluate import Closure
from cake.ir.instance import Instance
from cake.ir.types import RegionType
from cake.machine.effects import Region
from cake.machine.program import Instruction, Loop, Program

MOST_BLOCKS = 264
"""CTAs looked at; enough for one CTA on every SM of the largest chips, and a second wave of its tiles."""


@dataclass(slots=True)
class Wave:
    """What the CTAs of a wave read first. `asked` and `distinct` count windows per tensor; `trips` the
    passes of each CTA's outermost loops."""

    asked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    windows: dict[str, set[tuple[object, ...]]] = field(default_factory=lambda: defaultdict(set))
    trips: list[int] = field(default_factory=list)

    def fresh(self, tensor: str) -> float:
        """The share of what is read of `tensor` that no other CTA of the wave reads, too."""
        asked = self.asked.get(tensor, 0)
        return len(self.windows[tensor]) / asked if asked else 1.0

    @property
    def balance(self) -> float:
        """Mean over largest passes of the CTAs' outermost loops."""
        most = max(self.trips, default=0)
        return sum(self.trips) / (len(self.trips) * most) if most else 1.0

    @property
    def heaviest(self) -> int:
        """The CTA with most passes."""
        return self.trips.index(max(self.trips)) if self.trips else 0


class _First:
    """A `Trips` that runs each loop once and counts the passes of the outermost."""

    def __init__(self) -> None:
        self.outermost = 0

    def __call__(self, loop: Loop, start: int, stop: int, step: int) -> range:
        passes = range(start, stop, step)
        if loop.depth == 0 and not loop.node.unroll:
            self.outermost = max(self.outermost, len(passes))
        return passes[:1]


def first_wave(instance: Instance, program: Program, blocks: int) -> Wave:
    """Look at the first `blocks` CTAs, at the first warp of each role."""
    wave = Wave()
    readers: dict[int, tuple[tuple[str, Closure], ...]] = {}
    for block in range(min(blocks, MOST_BLOCKS, instance.blocks)):
        first = _First()
        for warp in program.warps(block):
            if warp.rank:
                continue
            for instruction in program.run(warp, first):
                found = readers.get(id(instruction))
                if found is None:
                    found = readers[id(instruction)] = _global_reads(instruction)
                for tensor, closure in found:
                    region = closure(warp.env)
                    assert isinstance(region, Region)
                    wave.asked[tensor] += 1
                    wave.windows[tensor].add((region.start, region.size))
        wave.trips.append(first.outermost)
    return wave


def _global_reads(instruction: Instruction) -> tuple[tuple[str, Closure], ...]:
    """The operands that are windows of input tensors."""
    out = []
    for name, closure in instruction.operands:
        for operand in instruction.site.operands[name]:
            kind = operand.type
            if isinstance(kind, RegionType) and kind.buffer.space == "global" and not kind.buffer.output:
                out.append((kind.buffer.name, closure))
    return tuple(out)


def from_memory(
    instance: Instance, asked: Mapping[tuple[str, str], float], wave: Wave, usable: float
) -> float:
    """Bytes that device memory moves for one launch. `asked`: bytes per (tensor, "read" or "write") that all
    CTAs ask of L2; `usable`: bytes that L2 keeps between waves."""
    tensors = {b.name: b for b in instance.buffers.values() if b.space == "global"}
    fits = sum(b.bytes for b in tensors.values()) <= usable
    total = 0.0
    for (name, direction), amount in asked.items():
        if name not in tensors:
            total += amount
            continue
        least = min(amount, tensors[name].bytes)
        if direction == "write" or fits:
            total += least
        else:
            total += max(least, amount * wave.fresh(name))
    return total
