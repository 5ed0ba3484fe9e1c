"""The bytes that a primitive's `value` touches are those that its `effects` declare.

Compared over all executions of one call: a warp's `value` may read the whole window of which it declares only
its own part, as long as the warps together declare all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.conformance.support import Array, demand, random_inputs
from cake.ir.instance import Instance
from cake.ir.types import Buffer
from cake.kinds.primitive import Memory, Op, Primitive
from cake.machine import effects as fx
from cake.machine.engine import run

_Key = tuple[int, str, bool]
"""Line of the call, buffer, whether written."""


class _Masks(dict[_Key, Array]):
    """Per key, which elements of the buffer; `partly`: of which only some, as values decide."""

    def __init__(self) -> None:
        super().__init__()
        self.partly: set[_Key] = set()

    def add(self, line: int, buffer: Buffer, box: fx.Box, *, write: bool) -> None:
        key = (line, buffer.name, write)
        if key not in self:
            self[key] = np.zeros(buffer.shape, bool)
        self[key][tuple(slice(start, start + size) for start, size in box)] = True


class _Watched:
    """Stands in for a primitive while the machine runs, and notes what it declares and touches."""

    def __init__(self, primitive: Primitive, declared: _Masks, touched: _Masks) -> None:
        self._primitive = primitive
        self._declared = declared
        self._touched = touched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._primitive, name)

    def effects(self, op: Op) -> Sequence[fx.Effect]:
        effects = list(self._primitive.effects(op))
        for effect in effects:
            for part in (*effect.reads, *effect.writes) if isinstance(effect, fx.Async) else (effect,):
                if isinstance(part, fx.Read) and part.some:
                    self._declared.partly.add((op.site.call.span.line, part.buffer.name, False))
                if isinstance(part, fx.Read | fx.Write):
                    line = op.site.call.span.line
                    self._declared.add(line, part.buffer, part.box, write=isinstance(part, fx.Write))
                if isinstance(part, fx.Write) and part.reduces:
                    self._declared.add(op.site.call.span.line, part.buffer, part.box, write=False)
        return effects

    def value(self, op: Op, memory: Memory) -> Array | None:
        return self._primitive.value(op, _WatchedMemory(memory, self._touched, op.site.call.span.line))


class _WatchedMemory:
    def __init__(self, memory: Memory, touched: _Masks, line: int) -> None:
        self._memory = memory
        self._touched = touched
        self._line = line

    def read(self, region: fx.Region, fill: float = 0.0) -> Array:
        self._touched.add(self._line, region.buffer, region.box, write=False)
        return self._memory.read(region, fill)

    def write(self, region: fx.Region, data: Array) -> None:
        self._touched.add(self._line, region.buffer, region.box, write=True)
        self._memory.write(region, data)


def check_touched(instance: Instance, primitive: Primitive, where: str) -> None:
    """Run the instance with values and compare declared with touched bytes. Raises Failed."""
    declared, touched = _Masks(), _Masks()
    stand_in: Any = _Watched(primitive, declared, touched)
    for key, (used, site) in instance.sites.items():
        if used is primitive:
            instance.sites[key] = (stand_in, site)
    findings = run(instance, inputs=random_inputs(instance, seed=0)).facts.findings
    demand(not findings, f"{where}: the machine found {findings[:1]}")
    for key in sorted({*declared, *touched}):
        line, buffer, write = key
        nothing = np.zeros_like(declared.get(key, touched.get(key)))
        says, does = declared.get(key, nothing), touched.get(key, nothing)
        verb = "writes" if write else "reads"
        place = f"{where}: line {line}: {buffer}"
        secret, idle = int(np.count_nonzero(does & ~says)), int(np.count_nonzero(says & ~does))
        demand(not secret, f"{place}: `value` {verb} {secret} elements that `effects` does not declare")
        idle = 0 if key in declared.partly else idle
        demand(not idle, f"{place}: `effects` declares {idle} elements that `value` never {verb}")
