"""Device memory of one launch: tensors between guard bands, outputs poisoned.

Bands and poison are the same byte, which makes NaN in every float type and a number far from zero in
integers: what a kernel reads outside a tensor shows in its result, what it writes outside shows in the band,
and what it fails to write shows in the output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cake.codegen.plan import LaunchPlan, TensorSpec
from cake.device.arrays import Array, bits, numpy_dtype
from cake.device.driver import DeviceFault, call, driver

BAND_BYTES = 4096


def poison_byte(dtype: np.dtype[Any]) -> int:
    """0xff repeated is a NaN that no instruction makes; integers get 0x80, for -1 is a sensible result."""
    return 0x80 if dtype.kind in "iu" else 0xFF


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a launch did that no correct kernel does. `code` is `device/SLUG`."""

    code: str
    tensor: str
    message: str

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "tensor": self.tensor, "message": self.message}


class Guarded:
    """One tensor in device memory between two bands; `address` is that of its first element."""

    def __init__(self, name: str, spec: TensorSpec) -> None:
        self.name = name
        self.spec = spec
        self.dtype = numpy_dtype(spec.dtype)
        self._poison = poison_byte(self.dtype)
        self.bytes = int(np.prod(spec.shape, dtype=np.int64)) * self.dtype.itemsize
        self._allocation = call(driver().cuMemAlloc, self.bytes + 2 * BAND_BYTES)
        self.address = int(self._allocation) + BAND_BYTES
        self.poison()

    def poison(self) -> None:
        """Fill tensor and bands."""
        call(driver().cuMemsetD8, self._allocation, self._poison, self.bytes + 2 * BAND_BYTES)

    def write(self, array: Array) -> None:
        """Copy a host array of the tensor's shape and dtype to the device. ValueError for another."""
        if array.shape != self.spec.shape or array.dtype != self.dtype:
            wanted, got = f"{self.spec.dtype}{list(self.spec.shape)}", f"{array.dtype}{list(array.shape)}"
            raise ValueError(f"{self.name} is {wanted}, got {got}")
        host = np.ascontiguousarray(array)
        call(driver().cuMemcpyHtoD, self.address, host.ctypes.data, self.bytes)

    def read(self) -> Array:
        """The tensor, copied to the host."""
        host = np.empty(self.spec.shape, self.dtype)
        call(driver().cuMemcpyDtoH, host.ctypes.data, self.address, self.bytes)
        return host

    def overrun(self) -> list[Finding]:
        """Writes into the bands."""
        found = []
        for side, start in (("before", self.address - BAND_BYTES), ("after", self.address + self.bytes)):
            band = np.empty(BAND_BYTES, np.uint8)
            call(driver().cuMemcpyDtoH, band.ctypes.data, start, BAND_BYTES)
            touched = np.flatnonzero(band != self._poison)
            if touched.size:
                nearest = BAND_BYTES - int(touched[-1]) if side == "before" else int(touched[0])
                where = f"{nearest} bytes {side} its {'start' if side == 'before' else 'end'}"
                message = f"{touched.size} bytes written outside {self.name}, the nearest {where}"
                found.append(Finding("device/out-of-bounds-write", self.name, message))
        return found

    def free(self) -> None:
        call(driver().cuMemFree, self._allocation)


class Tensors:
    """All tensors of a plan on the device. A context manager; frees them at its end."""

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = plan
        self.guarded: dict[str, Guarded] = {}
        try:
            for name, spec in plan.tensors.items():
                self.guarded[name] = Guarded(name, spec)
        except DeviceFault:
            self.free()
            raise

    def __enter__(self) -> Tensors:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    @property
    def addresses(self) -> dict[str, int]:
        return {name: tensor.address for name, tensor in self.guarded.items()}

    @property
    def bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.guarded.values())

    def fill(self, inputs: dict[str, Array]) -> None:
        """Copy the inputs in and poison the outputs. ValueError for a missing or unfit input."""
        for name, tensor in self.guarded.items():
            if tensor.spec.access == "out":
                tensor.poison()
            elif name in inputs:
                tensor.write(inputs[name])
            else:
                raise ValueError(f"no input for {name}")

    def outputs(self) -> dict[str, Array]:
        return {name: t.read() for name, t in self.guarded.items() if t.spec.access == "out"}

    def inspect(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> tuple[Finding, ...]:
        """Overruns, inputs changed, output elements that nothing wrote."""
        found: list[Finding] = []
        for name, tensor in self.guarded.items():
            found += tensor.overrun()
            if tensor.spec.access == "in" and not np.array_equal(bits(tensor.read()), bits(inputs[name])):
                found.append(Finding("device/input-modified", name, f"the kernel wrote to its input {name}"))
        for name, array in outputs.items():
            missing = unwritten(array)
            if count := int(np.count_nonzero(missing)):
                first = tuple(int(axis[0]) for axis in np.nonzero(missing))
                message = (
                    f"{count} of {array.size} elements of {name} not written, the first at {list(first)}"
                )
                found.append(Finding("device/unwritten", name, message))
        return tuple(found)

    def free(self) -> None:
        """Give the memory back; after a sticky fault the driver refuses, and the process ends anyway."""
        for tensor in self.guarded.values():
            try:
                tensor.free()
            except DeviceFault as fault:
                if not fault.sticky:
                    raise
        self.guarded.clear()


def unwritten(array: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where an output still holds the poison's bits."""
    raw = bits(array)
    pattern = np.full(raw.dtype.itemsize, poison_byte(array.dtype), np.uint8).view(raw.dtype)[0]
    mask: np.ndarray[Any, np.dtype[np.bool_]] = raw == pattern
    return mask
