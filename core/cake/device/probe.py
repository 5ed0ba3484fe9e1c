"""What GPU is here: the facts that decide which kernels run and what a measurement is worth."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cake.device.driver import Gpu, call, driver


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One GPU. Clocks in MHz as the driver states their maximum, sizes in bytes.

    `driver` is the newest CUDA version that the driver serves, as 13.0.
    """

    name: str
    arch: str
    driver: str
    sms: int
    l2_bytes: int
    memory_bytes: int
    shared_per_block: int
    shared_per_sm: int
    clock_mhz: int
    memory_clock_mhz: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def probe(gpu: Gpu) -> DeviceInfo:
    """The facts of an opened GPU. Raises DeviceFault where the driver refuses one."""
    cu = driver()
    names = cu.CUdevice_attribute

    def attribute(name: str) -> int:
        return int(call(cu.cuDeviceGetAttribute, getattr(names, f"CU_DEVICE_ATTRIBUTE_{name}"), gpu.device))

    version = int(call(cu.cuDriverGetVersion))
    return DeviceInfo(
        name=call(cu.cuDeviceGetName, 256, gpu.device).split(b"\0")[0].decode(errors="replace"),
        arch=gpu.arch,
        driver=f"{version // 1000}.{version % 1000 // 10}",
        sms=attribute("MULTIPROCESSOR_COUNT"),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        memory_bytes=int(call(cu.cuDeviceTotalMem, gpu.device)),
        shared_per_block=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        shared_per_sm=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        clock_mhz=attribute("CLOCK_RATE") // 1000,
        memory_clock_mhz=attribute("MEMORY_CLOCK_RATE") // 1000,
    )
