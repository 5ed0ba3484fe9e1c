"""Calibration: parameters of the cost model for one device and concern (calibrations/DEVICE_CONCERN.py).

Holds literals only: the module defines `CALIBRATION`. The docstring's headings are Measured how, Valid for,
Not valid for. Each key is declared by a primitive (`uses`) or by the cost model (`cake.cost.KEYS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Value:
    """A parameter with its unit; `spread` is relative (0.1: ±10 %), `n` the samples (0: not measured)."""

    value: float
    unit: Literal["cycles", "bytes/cycle", "flop/cycle", "bytes/s", "Hz", "s", "ratio", "count"]
    spread: float
    n: int = 0


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the numbers come from. `source` "vendor": data sheets and the literature, until measured."""

    source: Literal["vendor", "measured"]
    reference: str
    driver: str = ""
    command: str = ""
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Predicts:
    """The model gives `micros` for a kernel file within the relative error `within`."""

    name: str
    kernel: str
    dims: Mapping[str, int]
    micros: float
    within: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Parameters of one concern of one device."""

    device: str
    concern: str
    provenance: Provenance
    sets: Mapping[str, Value]
    cases: tuple[Predicts, ...] = field(default=())
