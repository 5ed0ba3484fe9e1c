"""setmaxnreg on the machine: registers move between warps and a pool, in step for a whole warpgroup.

Source: PTX ISA, "setmaxnreg".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from cake.ir.instance import Instance
from cake.kinds.primitive import Op
from cake.machine import effects as fx
from cake.machine import facts as ft
from cake.machine.agents import Agent
from cake.machine.program import Instruction

if TYPE_CHECKING:
    from cake.machine.engine import Engine

WARPGROUP = 4
MOST = 255
"""Registers that an instruction can name."""
FILE = 65536
"""Registers of an SM."""


def entry_budget(instance: Instance) -> int:
    """Registers a thread has at launch: all that the CTA's threads can have, but no more than the largest
    increase asks for, where there is one. So NVRTC 13.3 compiles kernels under `__launch_bounds__(n, 1)`."""
    most = min(MOST, FILE // instance.threads) // 8 * 8
    grown = [effect.count for effect in _changes(instance) if effect.grow]
    return min(most, max(grown)) if grown else most


def moves_registers(instance: Instance) -> bool:
    """Whether warps trade registers at all."""
    return any(True for _ in _changes(instance))


def _changes(instance: Instance) -> Iterator[fx.SetRegisters]:
    """Every change of a budget in the text; its operands are constants."""
    for primitive, site in instance.sites.values():
        operands = [o for bound in site.operands.values() for o in bound]
        if site.result is None and operands and all(o.constant is not None for o in operands):
            op = Op(site, {name: bound[0].constant for name, bound in site.operands.items()}, 0)
            for effect in primitive.effects(op):
                if isinstance(effect, fx.SetRegisters):
                    yield effect


def set_registers(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.SetRegisters) -> None:
    """Shrinking gives to the pool at once; growing waits for the pool."""
    _check_step(engine, agent, instruction, effect)
    agent.resized.append((agent.clock.seen[agent.index], instruction.span))
    pools, cta = engine.pools, agent.cta
    need = effect.count - agent.registers
    if not effect.grow:
        pools[cta] -= need * 32
        agent.registers = effect.count
        return

    def ready() -> bool:
        if pools[cta] < need * 32:
            return False
        pools[cta] -= need * 32
        agent.registers = effect.count
        return True

    if not ready():
        agent.blocked = ready
        agent.waits = (instruction, f"registers:{effect.count}", None)


def _check_step(engine: Engine, agent: Agent, instruction: Instruction, effect: fx.SetRegisters) -> None:
    """In the direction it says, and once all warps of the warpgroup have made the change before."""
    present = agent.registers
    if effect.count < present if effect.grow else effect.count > present:
        step = ft.RegisterStep("direction", instruction.span, effect.count, present)
        engine.find(step)
    done = len(agent.resized)
    if not done:
        return
    first = agent.index - agent.warp.index % WARPGROUP
    for other in engine.agents[first : first + WARPGROUP]:
        known = agent.clock.seen[other.index]
        if len(other.resized) < done or (other is not agent and known < other.resized[done - 1][0]):
            earlier = agent.resized[-1][1]
            step = ft.RegisterStep("unsynced", instruction.span, effect.count, present, earlier)
            engine.find(step)
            return


HANDLERS: Mapping[type, Callable[..., None]] = {fx.SetRegisters: set_registers}
