"""How many CTAs fit on an SM at once, and why no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cake.diagnostics import KernelErrors, error
from cake.ir import nodes as n
from cake.ir.instance import SWIZZLE_ALIGNMENT, Instance
from cake.ir.types import FragmentType
from cake.kinds.device import Device
from cake.machine.program import Branch, Copy, Elected, Instruction, Loop, Program, Step
from cake.machine.registers import MOST, entry_budget, moves_registers

WARP_REGISTERS = 256
"""Registers are dealt to a warp in pieces of so many (CUDA occupancy tables)."""

BASE_REGISTERS = 16
"""What addresses and the compiler's temporaries take beside fragments in straight code."""

LOOP_REGISTERS = 32
"""What counters, addresses of stages and tiles, and loads drawn ahead take more in loops."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """CTAs and warps resident on an SM; `limit` is what ends: "threads", "shared", "registers", "blocks"
    or "grid". `registers` a thread, given or estimated."""

    blocks: int
    warps: int
    limit: str
    registers: int
    estimated: bool


def occupancy(instance: Instance, device: Device, program: Program, registers: int | None) -> Occupancy:
    """Raises KernelErrors (`cost/does-not-fit`) where not even one CTA fits."""
    shared = instance.shared_bytes + (SWIZZLE_ALIGNMENT if _swizzled(instance) else 0)
    if shared > device.shared_per_block:
        _refuse(instance, f"{shared} bytes of shared memory", device.shared_per_block, device)
    if instance.threads > device.threads_per_sm:
        _refuse(instance, f"{instance.threads} threads", device.threads_per_sm, device)
    estimated = registers is None
    if registers is None:
        registers = estimate(instance, program)
    a_warp = -(-registers * 32 // WARP_REGISTERS) * WARP_REGISTERS
    room = {
        "blocks": device.blocks_per_sm,
        "threads": device.threads_per_sm // instance.threads,
        "shared": device.shared_per_sm // (shared + device.shared_reserved),
        "registers": device.registers_per_sm // (a_warp * instance.warps),
        "grid": -(-instance.blocks // device.sms),
    }
    limit = min(room, key=lambda name: room[name])
    # An estimate refuses nothing: the compiler spills.
    blocks = max(1, room[limit])
    return Occupancy(blocks, blocks * instance.warps, limit, registers, estimated)


def _swizzled(instance: Instance) -> bool:
    """Whether the CTA asks for slack, to begin where swizzle patterns do."""
    return any(buffer.swizzle for buffer in instance.buffers.values())


def _refuse(instance: Instance, what: str, most: int, device: Device) -> None:
    message = f"a CTA takes {what}, {device.name} has {most}"
    help = "use fewer stages or smaller tiles"
    raise KernelErrors(
        [error("cost/does-not-fit", message, instance.kernel.span, help=help)], instance.kernel.source
    )


# --- registers --------------------------------------------------------------------------------------------


def estimate(instance: Instance, program: Program) -> int:
    """Registers a thread, from the fragments live at once; all of the SM's where warps trade them."""
    if moves_registers(instance):
        return entry_budget(instance)
    peak = 0
    for steps in program.roles.values():
        line = list(_flatten(steps))
        loops = any(around for _, around in line)
        peak = max(peak, _live(line) + (LOOP_REGISTERS if loops else 0))
    return min(MOST, BASE_REGISTERS + peak)


def _flatten(steps: tuple[Step, ...]) -> Iterator[tuple[Instruction | Copy, tuple[int, ...]]]:
    """Instructions in order of the text, each with the loops around it."""
    for step in steps:
        if isinstance(step, Instruction | Copy):
            yield step, ()
        elif isinstance(step, Loop):
            for inner, around in _flatten(step.body):
                yield inner, (id(step), *around)
        elif isinstance(step, Elected):
            yield from _flatten(step.body)
        elif isinstance(step, Branch):
            yield from _flatten((*step.body, *step.orelse))


def _live(line: list[tuple[Instruction | Copy, tuple[int, ...]]]) -> int:
    """Most words of named fragments live at one instruction; those carried around a loop live in all of it.

    Nested expressions have no registers of their own: compilers stream their elements through.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    words: dict[str, int] = {}
    ends = {loop: at for at, (_, around) in enumerate(line) for loop in around}
    starts = {loop: at for at, (_, around) in reversed(list(enumerate(line))) for loop in around}
    for at, (step, around) in enumerate(line):
        for name in _used(step):
            if name in first:
                # Defined before a loop and used in it: live until the loop ends.
                outer = [loop for loop in around if starts[loop] > first[name]]
                last[name] = max([at, last.get(name, at), *(ends[loop] for loop in outer)])
        if isinstance(step, Copy):
            words[step.target] = words.get(step.source, 0)
            first.setdefault(step.target, at)
            last[step.target] = at
        elif isinstance(step.site.result, FragmentType):
            size = -(-step.site.result.registers * step.site.result.dtype.bytes // 4)
            if step.target and not step.target.startswith("%"):
                words[step.target] = max(words.get(step.target, 0), size)
                first.setdefault(step.target, at)
                last[step.target] = max(last.get(step.target, at), at)
    # What dies at an instruction makes room for what it defines.
    before = (sum(words[x] for x in first if first[x] < at <= last[x]) for at in range(len(line)))
    after = (sum(words[x] for x in first if first[x] <= at < last[x]) for at in range(len(line)))
    return max((*before, *after), default=0)


def _used(step: Instruction | Copy) -> set[str]:
    if isinstance(step, Copy):
        return {step.source}
    exprs = [o.expr for bound in step.site.operands.values() for o in bound if o.expr is not None]
    return {e.id for expr in exprs for e in n.walk_expr(expr) if isinstance(e, n.Name)}
