"""What each call of a kernel was seen to do: effects sampled on an instance, without naming any instruction.

Control flow does not depend on what waits wait for, so every warp can be walked alone, a few passes of each
loop. An effect that is no access to memory synchronizes: a new kind of effect is therefore found by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cake.ir import nodes as n
from cake.ir.evaluate import EvaluationError
from cake.ir.instance import Instance
from cake.ir.rewrite import Spot, spots
from cake.ir.types import FragmentType
from cake.kinds.primitive import Kind, Op, Operand, Primitive
from cake.machine import effects as fx
from cake.machine.agents import FragmentValue
from cake.machine.program import Loop, Program, Warp

PASSES = 2
"""Passes of each loop that are walked."""

ACCESSES = (fx.Read, fx.Write, fx.Aligned, fx.Inside, fx.Async)
"""Effects on memory; every other effect orders, counts or waits."""


@dataclass(slots=True)
class Duty:
    """A call's execution that was seen first, and its effects, one of each type."""

    primitive: Primitive
    op: Op
    effects: dict[type, Any] = field(default_factory=dict)
    meetings: dict[tuple[int, int, int], set[int]] = field(default_factory=dict)
    """Which warps come here to a hardware barrier, by CTA, number and the warps it counts."""

    @property
    def synchronizes(self) -> bool:
        return any(kind not in ACCESSES for kind in self.effects)

    @property
    def touches_memory(self) -> bool:
        return any(kind in (fx.Read, fx.Write, fx.Async) for kind in self.effects)

    def meets_here_alone(self, warps: int) -> bool:
        """Every hardware barrier met here gathers all its warps here, `warps` of them if it is the CTA's."""
        return all(len(came) == (count or warps) for (_, _, count), came in self.meetings.items())

    def seen(self, attribute: str) -> Any:
        """The value of that field of the first effect that has it; None where none has."""
        for effect in self.effects.values():
            if (value := getattr(effect, attribute, None)) is not None:
                return value
        return None

    def given(self, kind: Kind) -> list[tuple[Operand, n.Expr]]:
        """The operands that the author wrote for parameters that may be of that kind."""
        kinds = {p.name: p.kinds for p in self.primitive.parameters}
        bound = [o for name, all_ in self.op.site.operands.items() if kind in kinds[name] for o in all_]
        return [(o, o.expr) for o in bound if o.expr is not None]


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel to mutate: its canonical text parsed, an instance of it, and the duty of each call by `id`."""

    kernel: n.Kernel
    instance: Instance
    duties: Mapping[int, Duty]
    primitives: Mapping[str, Primitive]

    def spots(self) -> Iterator[Spot]:
        return spots(self.kernel.body)

    def duty(self, stmt: n.Stmt) -> Duty | None:
        """What the call of `call(...)` or `x = call(...)` does; None where it was never executed."""
        call = stmt.call if isinstance(stmt, n.Do) else stmt.value if isinstance(stmt, n.Assign) else None
        return self.duties.get(id(call))

    def working(self) -> Iterator[tuple[Spot, Duty]]:
        """Statements that are a call."""
        for spot in self.spots():
            if (duty := self.duty(spot.stmt)) is not None:
                yield spot, duty

    def synchronizing(self) -> Iterator[tuple[Spot, Duty]]:
        """Statements that are a call which synchronizes."""
        return ((spot, duty) for spot, duty in self.working() if duty.synchronizes)

    def indices(self) -> Iterator[n.Index]:
        """Every window and every place in an array, in statements that execute."""
        for spot in self.spots():
            for expr in n.expressions(spot.stmt):
                for node in n.walk_expr(expr):
                    if isinstance(node, n.Index):
                        yield node


def survey(instance: Instance) -> dict[int, Duty]:
    """The duty of each call that the first two CTAs or the last execute, by the `id` of the call."""
    program = Program(instance)
    duties: dict[int, Duty] = {}
    for block in sorted({0, min(1, instance.blocks - 1), instance.blocks - 1}):
        for warp in program.warps(block):
            _walk(program, warp, block, duties)
    return duties


def _walk(program: Program, warp: Warp, block: int, duties: dict[int, Duty]) -> None:
    """Note what one warp does; it ends early where an expression has no value."""
    steps = program.run(warp, _few)
    result: FragmentValue | int | None = None
    try:
        while True:
            instruction = steps.send(result)
            op = instruction.op(warp.env, warp.rank)
            duty = duties.setdefault(id(op.site.call), Duty(instruction.primitive, op))
            for effect in instruction.primitive.effects(op):
                duty.effects.setdefault(type(effect), effect)
                if isinstance(effect, fx.Rendezvous):
                    place = (block, effect.id, effect.warps)
                    duty.meetings.setdefault(place, set()).add(warp.index)
            kind = op.site.result
            result = FragmentValue(kind, None, instruction) if isinstance(kind, FragmentType) else None
            if instruction.primitive.scalar:
                result = int(op.args["high"])
    except (StopIteration, EvaluationError):
        return


def _few(loop: Loop, start: int, stop: int, step: int) -> range:
    return range(start, stop, step)[:PASSES]
