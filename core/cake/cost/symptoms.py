"""What is wrong with a kernel's time, in the closed vocabulary of `kinds.tactic.Symptom`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from cake.cost.clock import Timeline
from cake.cost.occupancy import Occupancy
from cake.kinds.tactic import Symptom


@dataclass(frozen=True, slots=True)
class Account:
    """What symptoms are read from. `use`: busy share per unit; `hbm_bytes` moved and `tensor_bytes` that
    exist; `balance`: mean over most passes of persistent CTAs."""

    cta: Timeline
    use: Mapping[str, float]
    hbm_bytes: float
    tensor_bytes: float
    waves: float
    balance: float
    occupancy: Occupancy
    bound: str


def symptoms_of(it: Account) -> tuple[Symptom, ...]:
    """The symptoms, in the order of the vocabulary."""
    multiplies = it.use.get("tensor", 0.0) > 0
    found: dict[Symptom, bool] = {
        "tensor_idle": multiplies and it.use["tensor"] < 0.75,
        "copy_latency_exposed": _waits(it, "copy") > 0.15 and max(it.use["hbm"], it.use["l2"]) < 0.9,
        "shared_port_bound": it.use.get("shared", 0.0) > 0.75,
        "memory_bound": it.use["hbm"] > 0.7,
        "issue_bound": it.use.get("issue", 0.0) > 0.7,
        "l2_reuse_low": it.hbm_bytes > 1.5 * it.tensor_bytes or (multiplies and it.use["l2"] > 0.6),
        "tail_wave": _tail(it) < 0.9,
        "occupancy_low": it.bound == "latency" and it.occupancy.warps < 32 and it.occupancy.limit != "grid",
        "epilogue_exposed": multiplies and _epilogue(it) > 0.1,
        "narrow_accesses": it.cta.accesses["lanes"] > 0 and _width(it) < 8 and it.use["hbm"] > 0.3,
    }
    return tuple(symptom for symptom, holds in found.items() if holds)


def _waits(it: Account, cause: str) -> float:
    """The largest share of its time that a warp waits for `cause`."""
    warps: dict[int, float] = defaultdict(float)
    for (why, _, warp), cycles in it.cta.stalls.items():
        if why == cause or (cause == "copy" and why == "operands" and it.use.get("tensor", 0.0) == 0):
            warps[warp] += cycles
    return max(warps.values(), default=0.0) / max(it.cta.cycles, 1.0)


def _tail(it: Account) -> float:
    """How full the places on the chip are over all waves."""
    if it.waves <= 1:
        return it.balance
    return it.waves / -(-it.waves // 1)


def _epilogue(it: Account) -> float:
    """The share of its time that a warp which multiplies spends in tasks without tensor instructions."""
    working = {line for (unit, line), cycles in it.cta.units.items() if unit == "tensor" and cycles > 0}
    tasks = {(role, task) for ((line, role, task), _) in it.cta.lines if line in working}
    roles = {role for role, _ in tasks}
    warps: dict[int, float] = defaultdict(float)
    for ((_, role, task), warp), cycles in it.cta.lines.items():
        if role in roles and task and (role, task) not in tasks:
            warps[warp] += cycles
    return max(warps.values(), default=0.0) / max(it.cta.cycles, 1.0)


def _width(it: Account) -> float:
    """Mean bytes of a lane's access to device memory."""
    return it.cta.accesses["bytes"] / it.cta.accesses["lanes"]
