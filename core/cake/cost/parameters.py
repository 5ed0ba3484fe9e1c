"""The parameters of one device, gathered from its calibrations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cake.errors import CakeError
from cake.kinds.calibration import Calibration, Value

KEYS: Mapping[str, str] = {
    "clock": "Hz of the SMs under load",
    "launch.time": "seconds from one launch to the next of kernels that do nothing",
    "cta.latency": "cycles from a free place on an SM to the first instruction of the next CTA",
    "hbm.bandwidth": "bytes/s that device memory sustains, reads and writes together",
    "hbm.peak": "bytes/s of the data sheet: no kernel moves more",
    "l2.bandwidth": "bytes/s between L2 and all SMs",
    "l2.sm_bytes": "bytes/cycle between L2 and one SM, at most",
    "l2.usable": "ratio of L2 that keeps data between the CTAs of one launch",
    "tensor.peak": "flop/cycle of one SM's tensor cores at 16-bit operands: no kernel does more",
}
"""What the cost model itself looks up; every other key is declared by a primitive (`uses`)."""


class Unknown(CakeError):
    """No calibration of the device sets a key, so there is no prediction: it is never guessed."""

    def __init__(self, key: str, device: str) -> None:
        self.key = key
        what = f" ({KEYS[key]})" if key in KEYS else ""
        super().__init__(
            f"no calibration of {device} sets {key!r}{what}: a file in calibrations/ must set it before "
            "this kernel's time can be predicted"
        )


class Parameters:
    """Looks keys up for one device: `parameters("clock")` is the value. Raises Unknown."""

    def __init__(self, device: str, calibrations: Iterable[Calibration]) -> None:
        self.device = device
        self.calibrations = tuple(c for c in calibrations if c.device == device)
        self.sets: dict[str, Value] = {}
        for calibration in self.calibrations:
            self.sets.update(calibration.sets)

    def __call__(self, key: str) -> float:
        return self.value(key).value

    def value(self, key: str) -> Value:
        """The parameter with unit and spread. Raises Unknown."""
        found = self.sets.get(key)
        if found is None:
            raise Unknown(key, self.device)
        return found

    def spread(self, keys: Iterable[str]) -> float:
        """The largest relative spread among those keys that are set."""
        return max((self.sets[key].spread for key in keys if key in self.sets), default=0.0)

    @property
    def provenance(self) -> str:
        """One line that says where the numbers come from."""
        vendor = sorted(c.concern for c in self.calibrations if c.provenance.source == "vendor")
        measured = sorted(c.concern for c in self.calibrations if c.provenance.source == "measured")
        parts = []
        if vendor:
            parts.append(f"vendor data, not measured ({', '.join(vendor)})")
        if measured:
            parts.append(f"measured ({', '.join(measured)})")
        return f"{self.device}: {'; '.join(parts)}"
