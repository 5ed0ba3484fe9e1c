"""The predicted time of one launch: pipelines, occupancy and waves on each SM, and what the chip shares.

    an SM with n CTAs of latency T, r of them at once, whose busiest unit takes B cycles a CTA:
        max(ceil(n / r) T,  T + (n - 1) B)
    the chip: bytes over the bandwidth of L2 and of device memory

The larger of both, and the launch. Each number comes from a calibration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

from cake.cost.clock import Clock, Costs, Stuck, Timeline
from cake.cost.occupancy import Occupancy, occupancy
from cake.cost.parameters import Parameters
from cake.cost.reuse import Wave, first_wave, from_memory
from cake.cost.steady import Shortened, loop_counts, whole
from cake.cost.symptoms import Account, symptoms_of
from cake.diagnostics import KernelErrors, error
from cake.errors import CakeError
from cake.ir.arch import canonical, claimed
from cake.ir.evaluate import EvaluationError
from cake.ir.instance import Instance
from cake.kinds.device import Device
from cake.machine.program import Program
from cake.plugins import Registry

BUSY = 0.7
"""A unit that is busy for so much of the time is what bounds the kernel."""


@dataclass(frozen=True, slots=True)
class LineCost:
    """What a line of the kernel costs: `seconds` that a warp of `role` which comes there spends at it,
    `share` of the CTA's time; of these `waits` seconds by what is waited for ("copy", "tensor", "warps",
    "operands"); `unit` is the one it keeps busy most (empty: none)."""

    line: int
    role: str
    task: str
    seconds: float
    share: float
    waits: Mapping[str, float]
    unit: str


@dataclass(frozen=True, slots=True)
class Floor:
    """What no kernel for this work can beat with a cold L2: bytes and flops over the chip's peaks."""

    bytes: float
    flops: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """Time of one launch in seconds, between `low` and `high`.

    `bound`: the unit that is busy most ("tensor", "shared", "alu", "mufu", "lsu", "copy", "issue", "l2",
    "hbm"), "latency" where none is, or "launch". `by_unit`: the share of the time that each is busy.
    `waves`: CTAs over places on the chip. `hbm_bytes`, `l2_bytes`: what one launch moves.
    """

    device: str
    title: str
    seconds: float
    low: float
    high: float
    bound: str
    by_unit: Mapping[str, float]
    by_line: tuple[LineCost, ...]
    symptoms: tuple[str, ...]
    waves: float
    occupancy: Occupancy
    floor_seconds: float
    hbm_bytes: float
    l2_bytes: float
    notes: tuple[str, ...]
    provenance: str

    def as_json(self) -> dict[str, Any]:
        """Plain data, the same facts."""
        return {
            "device": self.device,
            "kernel": self.title,
            "seconds": self.seconds,
            "low": self.low,
            "high": self.high,
            "bound": self.bound,
            "by_unit": dict(self.by_unit),
            "by_line": [
                {
                    "line": c.line,
                    "role": c.role,
                    "task": c.task,
                    "seconds": c.seconds,
                    "share": c.share,
                    "waits": dict(c.waits),
                    "unit": c.unit,
                }
                for c in self.by_line
            ],
            "symptoms": list(self.symptoms),
            "waves": self.waves,
            "occupancy": {
                "blocks": self.occupancy.blocks,
                "warps": self.occupancy.warps,
                "limit": self.occupancy.limit,
                "registers": self.occupancy.registers,
                "estimated": self.occupancy.estimated,
            },
            "floor_seconds": self.floor_seconds,
            "hbm_bytes": self.hbm_bytes,
            "l2_bytes": self.l2_bytes,
            "notes": list(self.notes),
            "provenance": self.provenance,
        }


def floor(registry: Registry, device: str, *, bytes: float, flops: float = 0.0) -> Floor:
    """The physical floor of moving `bytes` through device memory and doing `flops` on the tensor cores.

    Raises Unknown, and CakeError for an unknown device.
    """
    it: Device = registry.get("device", device)
    parameters = Parameters(device, registry.calibrations.values())
    clock = parameters("clock") * (1 + parameters.spread(["clock"]))
    work = flops / (parameters("tensor.peak") * it.sms * clock)
    return Floor(bytes, flops, max(bytes / parameters("hbm.peak"), work))


def predict(
    instance: Instance,
    registry: Registry,
    device: str = "H200",
    *,
    registers: int | None = None,
    flops: float = 0.0,
) -> Prediction:
    """The time that `instance` takes on `device`.

    `registers` a thread, where a compiler has told them (else estimated); `flops` that the operator needs,
    for the floor. Raises Unknown where no calibration sets a key, CakeError for a device that is not known
    or that the kernel does not run on, KernelErrors (`cost/...`) where a CTA does not fit or waits for ever.
    """
    it: Device = registry.get("device", device)
    if canonical(it.arch) not in claimed(canonical(instance.kernel.arch)):
        raise CakeError(f"{instance.kernel.name} is for {instance.kernel.arch}; {device} is {it.arch}")
    try:
        return _Model(instance, registry, it, registers, flops).prediction()
    except EvaluationError as e:
        found = error("type/no-value", e.message, e.span)
        raise KernelErrors([found], instance.kernel.source) from None


class _Model:
    """One prediction in the making."""

    def __init__(
        self, instance: Instance, registry: Registry, device: Device, registers: int | None, flops: float
    ) -> None:
        self.instance = instance
        self.registry = registry
        self.device = device
        self.flops = flops
        self.parameters = Parameters(device.name, registry.calibrations.values())
        self.program = Program(instance)
        self.occupancy = occupancy(instance, device, self.program, registers)
        self.hz = self.parameters("clock")
        self.active = min(device.sms, instance.blocks)
        self.costs = Costs(self.parameters)
        self.wave: Wave = first_wave(instance, self.program, device.sms * self.occupancy.blocks)
        self.notes: list[str] = []
        if self.occupancy.estimated:
            self.notes.append("registers are estimated from the fragments that live at once")

    # --- one CTA ------------------------------------------------------------------------------------------

    def timeline(self) -> Timeline:
        """The CTA with most work, all passes of its loops."""
        block = self.wave.heaviest
        share = self.parameters("l2.bandwidth") / self.hz / self.active
        l2_bytes = min(share, self.parameters("l2.sm_bytes"))

        strange: set[tuple[int, int]] = set()

        def run(trips: Shortened) -> Timeline:
            timeline = Clock(self.instance, self.program, self.costs, l2_bytes, block, trips).run()
            strange.update(trips.strange)
            return timeline

        counts = loop_counts(self.program, block)
        try:
            try:
                timeline = whole(run, counts, last=not self.instance.barriers)
                if strange:
                    self.notes.append("a loop's count changes: the passes that were run stand for all")
                return timeline
            except Stuck:
                # Roles that fit together in full may not do so when shortened.
                self.notes.append("no steady state was found; every pass was run")
                return run(Shortened({}, last=False))
        except Stuck as stuck:
            raise self.stuck(stuck) from None

    def stuck(self, stuck: Stuck) -> KernelErrors:
        kernel = self.instance.kernel
        span = stuck.instructions[0].span if stuck.instructions else kernel.span
        found = error("cost/no-end", f"no time can be given: {stuck}", span, help="`cake check` says why")
        return KernelErrors([found], kernel.source)

    # --- the chip -----------------------------------------------------------------------------------------

    def prediction(self) -> Prediction:
        cta = self.timeline()
        n = ceil(self.instance.blocks / self.device.sms)
        resident = min(self.occupancy.blocks, n)
        hbm_bytes, l2_bytes = self.moved(cta)
        chip = {
            "hbm": hbm_bytes / self.parameters("hbm.bandwidth"),
            "l2": l2_bytes / self.parameters("l2.bandwidth"),
        }
        units = self.busy(cta, resident)
        body = self.body(cta, n, resident, units, chip)
        launch = self.parameters("launch.time")

        use = {unit: min(1.0, cycles * n / self.hz / body) for unit, cycles in units.items()}
        use |= {name: min(1.0, time / body) for name, time in chip.items()}
        spread = self.spread(use)
        slack = body * spread + launch * self.parameters.spread(["launch.time"])
        bound = self.bound(use, body, launch)
        waves = self.instance.blocks / (self.device.sms * self.occupancy.blocks)
        memory = sum(b.bytes for b in self.instance.buffers.values() if b.space == "global")
        lowest = floor(self.registry, self.device.name, bytes=memory, flops=self.flops).seconds
        account = Account(cta, use, hbm_bytes, memory, waves, self.balance, self.occupancy, bound)
        return Prediction(
            device=self.device.name,
            title=self.instance.title,
            seconds=body + launch,
            low=max(lowest, body + launch - slack / (1 + spread)),
            high=body + launch + slack,
            bound=bound,
            by_unit=dict(sorted(use.items(), key=lambda item: -item[1])),
            by_line=self.lines(cta, body),
            symptoms=symptoms_of(account),
            waves=waves,
            occupancy=self.occupancy,
            floor_seconds=lowest,
            hbm_bytes=hbm_bytes,
            l2_bytes=l2_bytes,
            notes=tuple(self.notes),
            provenance=self.parameters.provenance,
        )

    @property
    def balance(self) -> float:
        """Mean over most work of the CTAs, where all of them were looked at."""
        return self.wave.balance if self.instance.blocks <= len(self.wave.trips) else 1.0

    def moved(self, cta: Timeline) -> tuple[float, float]:
        """Bytes of one launch through device memory and through L2."""
        scale = self.instance.blocks * self.balance
        asked = {name: amount * scale for name, amount in cta.tensors.items()}
        usable = self.device.l2_bytes * self.parameters("l2.usable")
        return from_memory(self.instance, asked, self.wave, usable), sum(asked.values())

    def body(
        self, cta: Timeline, n: int, resident: int, units: Mapping[str, float], chip: Mapping[str, float]
    ) -> float:
        """Seconds without the launch: `n` CTAs on the fullest SM, and the chip's bandwidths."""
        latency = cta.cycles + self.parameters("cta.latency")
        most = max([*units.values(), max(chip.values()) * self.hz / n])
        pipeline = max(ceil(n / resident) * latency, latency + (n - 1) * most) / self.hz
        return max(pipeline, *chip.values())

    def busy(self, cta: Timeline, resident: int) -> dict[str, float]:
        """Cycles that each unit of the SM takes for one CTA among `resident` ones.

        A quarter that one CTA loads alone is relieved by the warps of others, which go to other quarters.
        """
        out = {unit: cycles for unit, cycles in cta.busy.items() if unit != "l2"}
        for (unit, part), cycles in cta.part.items():
            if part >= 0:
                out[unit] = max(out[unit], cycles / min(resident, 4))
        return out

    def bound(self, use: Mapping[str, float], body: float, launch: float) -> str:
        unit = max(use, key=lambda name: use[name])
        if launch > body:
            return "launch"
        return unit if use[unit] >= BUSY else "latency"

    def spread(self, use: Mapping[str, float]) -> float:
        """Relative uncertainty: each parameter counts as its unit is busy, latencies as nothing is."""
        keys: dict[str, set[str]] = defaultdict(set)
        keys["hbm"], keys["l2"] = {"hbm.bandwidth"}, {"l2.bandwidth"}
        latencies: set[str] = set()
        for primitive, units in self.costs.units.items():
            waits = {key for key in primitive.uses if key.endswith(".latency")}
            latencies |= waits
            for unit in units:
                keys[unit] |= set(primitive.uses) - waits
        of = self.parameters.spread
        terms = [share * of(keys[unit]) for unit, share in use.items()]
        terms.append((1 - max(use.values(), default=0.0)) * of(latencies))
        terms.append((1 - use["hbm"]) * of(["clock"]))
        return sqrt(sum(term * term for term in terms))

    def lines(self, cta: Timeline, body: float) -> tuple[LineCost, ...]:
        """Per place the mean of the warps that come there, dearest first."""
        warps: dict[tuple[int, str, str], list[float]] = defaultdict(list)
        for (place, _), cycles in cta.lines.items():
            warps[place].append(cycles)
        waits: dict[tuple[int, str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
        scale = body / max(cta.cycles, 1.0)
        for (cause, place, _), cycles in cta.stalls.items():
            waits[place][cause] += cycles * scale / len(warps[place])
        units: dict[int, dict[str, float]] = defaultdict(dict)
        for (unit, line), cycles in cta.units.items():
            units[line][unit] = cycles
        roles: dict[str, float] = defaultdict(float)
        for (_, role, _), each in warps.items():
            roles[role] += sum(each) / len(each) / max(cta.cycles, 1.0)
        out = []
        for place, each in warps.items():
            # A role's lines take no longer than the CTA: waits vary from pass to pass, their sum does not.
            share = sum(each) / len(each) / max(cta.cycles, 1.0) / max(1.0, roles[place[1]])
            busy = units.get(place[0], {})
            unit = max(busy, key=lambda name: busy[name]) if busy else ""
            out.append(LineCost(*place, share * body, share, dict(waits[place]), unit))
        return tuple(sorted(out, key=lambda cost: (-cost.seconds, cost.line, cost.role)))
