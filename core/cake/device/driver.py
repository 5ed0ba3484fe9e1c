"""The CUDA driver: every return code checked, every failure one of two exceptions.

MissingEnvironment says that there is no driver or GPU; DeviceFault says what the driver answered, under a
code that the failure ledger can count (`device/illegal-address`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cake.errors import MissingEnvironment, Refused

_CODES = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "device/illegal-address",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "device/misaligned-address",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "device/illegal-instruction",
    "CUDA_ERROR_LAUNCH_FAILED": "device/launch-failed",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "device/out-of-resources",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "device/launch-timeout",
    "CUDA_ERROR_OUT_OF_MEMORY": "device/out-of-memory",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "device/wrong-arch",
    "CUDA_ERROR_INVALID_IMAGE": "device/invalid-cubin",
    "CUDA_ERROR_INVALID_VALUE": "device/invalid-value",
    "CUDA_ERROR_ASSERT": "device/assert",
}
_HARMLESS = {
    "device/out-of-resources",
    "device/out-of-memory",
    "device/wrong-arch",
    "device/invalid-cubin",
    "device/invalid-value",
}


class DeviceFault(Refused):
    """A kernel that could not be launched, crashed, or did not end. `code` is `device/SLUG`.

    `sticky`: the CUDA context is lost with it, so that the process must end before the next launch.
    """

    def __init__(self, code: str, message: str, *, sticky: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.sticky = sticky


@dataclass(frozen=True, slots=True)
class Gpu:
    """An opened GPU: its driver handle and primary context, which is current in this thread."""

    index: int
    device: Any
    context: Any
    arch: str
    """The target that this GPU runs, as `sm_90a`."""


def driver() -> Any:
    """The bindings. Raises MissingEnvironment without them."""
    try:
        from cuda.bindings import driver as bindings
    except ImportError as error:
        raise MissingEnvironment(
            f"no CUDA driver/GPU: cuda-bindings cannot be imported: {error}; `pip install cuda-bindings`"
        ) from error
    return bindings


def call(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    """The values of a driver call: none, one, or a tuple. Raises DeviceFault for a bad status."""
    status, *values = function(*arguments)
    if int(status) != 0:
        raise _fault(status, getattr(function, "__name__", "CUDA"))
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


def open_gpu(index: int = 0) -> Gpu:
    """Initialize the driver and make the primary context of GPU `index` current.

    It is the context that torch uses too. Raises MissingEnvironment where there is no driver or GPU.
    """
    cu = driver()
    try:
        status, *_ = cu.cuInit(0)
    except (RuntimeError, OSError) as error:  # how the bindings say that libcuda is not there
        raise MissingEnvironment(f"no CUDA driver/GPU: {_first_line(error)}") from error
    if int(status) != 0:
        raise MissingEnvironment(f"no CUDA driver/GPU: cuInit answers {_name(status)}")
    try:
        count = call(cu.cuDeviceGetCount)
        if index >= count:
            raise MissingEnvironment(f"no CUDA driver/GPU: GPU {index} asked for, the driver sees {count}")
        device = call(cu.cuDeviceGet, index)
        context = call(cu.cuDevicePrimaryCtxRetain, device)
        call(cu.cuCtxSetCurrent, context)
        attribute = cu.CUdevice_attribute
        major = call(cu.cuDeviceGetAttribute, attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
        minor = call(cu.cuDeviceGetAttribute, attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
    except DeviceFault as fault:
        raise MissingEnvironment(f"no CUDA driver/GPU: {fault}") from fault
    return Gpu(index, device, context, arch_name(major, minor))


def arch_name(major: int, minor: int) -> str:
    """The compile target of a compute capability: 9.0 is sm_90a, 8.9 is sm_89."""
    number = 10 * major + minor
    return f"sm_{number}a" if number >= 90 else f"sm_{number}"


def runs_on(cubin_arch: str, gpu_arch: str) -> bool:
    """Whether machine code for one target runs on another.

    Code for a plain target runs on later minor revisions of the same major one; code with the suffix `a`
    runs on exactly that one.
    """
    if cubin_arch.endswith("a"):
        return cubin_arch == gpu_arch
    built, here = (int(arch.removeprefix("sm_").rstrip("a")) for arch in (cubin_arch, gpu_arch))
    return built // 10 == here // 10 and built <= here


def _fault(status: Any, function: str) -> DeviceFault:
    name = _name(status)
    code = _CODES.get(name, "device/error")
    cu = driver()
    found, text = cu.cuGetErrorString(status)
    words = text.decode(errors="replace") if int(found) == 0 and text else "no explanation"
    # Whatever is not known to leave the context alone is taken to have destroyed it.
    return DeviceFault(code, f"{function} answers {name}: {words}", sticky=code not in _HARMLESS)


def _name(status: Any) -> str:
    return str(getattr(status, "name", status))


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
