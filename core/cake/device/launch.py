"""Launch of one generated kernel: cubin and plan in, outputs and findings out."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cake.codegen.plan import LaunchPlan, PointerParam
from cake.device.arrays import Array
from cake.device.driver import DeviceFault, Gpu, call, driver, runs_on
from cake.device.memory import Finding, Tensors
from cake.device.tensormap import BYTES, encode

_MAP_ALIGNMENT = 128


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one launch gave: outputs by name, and what it did that no correct kernel does."""

    outputs: dict[str, Array]
    findings: tuple[Finding, ...]


class LoadedKernel:
    """A kernel in the GPU's memory, ready to launch. A context manager; unloads at its end.

    Raises DeviceFault where the cubin is for another architecture, is no cubin, or asks for more than a
    block can have.
    """

    def __init__(self, gpu: Gpu, cubin: bytes, plan: LaunchPlan) -> None:
        if not runs_on(plan.arch, gpu.arch):
            raise DeviceFault("device/wrong-arch", f"built for {plan.arch}, this GPU runs {gpu.arch}")
        if not cubin.startswith(b"\x7fELF"):
            # The driver would take other bytes for PTX text and read on to a zero.
            raise DeviceFault("device/invalid-cubin", "the bytes to load are no cubin")
        cu = driver()
        self.plan = plan
        self._module = call(cu.cuModuleLoadData, cubin)
        try:
            self.function = call(cu.cuModuleGetFunction, self._module, plan.entry.encode())
            self._reserve()
            self._config = self._launch_config()
        except DeviceFault:
            self.unload()
            raise

    def __enter__(self) -> LoadedKernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.unload()

    def _reserve(self) -> None:
        """More than 48 KiB of dynamic shared memory, and clusters of more than 8, must be asked for."""
        attributes = driver().CUfunction_attribute
        wanted = self.plan.dynamic_shared_bytes
        try:
            name = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(driver().cuFuncSetAttribute, self.function, name, wanted)
        except DeviceFault as fault:
            message = f"{wanted} bytes of dynamic shared memory are refused: {fault}"
            raise DeviceFault("device/out-of-resources", message, sticky=fault.sticky) from fault
        x, y, z = self.plan.cluster
        if x * y * z > 8:
            name = attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            call(driver().cuFuncSetAttribute, self.function, name, 1)

    def _launch_config(self) -> Any:
        cu, plan = driver(), self.plan
        config = cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = plan.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = plan.block
        config.sharedMemBytes = plan.dynamic_shared_bytes
        if plan.cluster == (1, 1, 1):
            config.numAttrs = 0
            return config
        attribute = cu.CUlaunchAttribute()
        attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        cluster = attribute.value.clusterDim
        cluster.x, cluster.y, cluster.z = plan.cluster
        config.attrs = [attribute]
        config.numAttrs = 1
        return config

    def bind(self, addresses: Mapping[str, int]) -> Arguments:
        """The kernel's arguments for tensors at these device addresses."""
        return Arguments(self.plan, addresses)

    def launch(self, arguments: Arguments, stream: Any = 0) -> None:
        """Enqueue one launch. Raises DeviceFault where the driver refuses it; faults of the kernel itself
        show at the next synchronization."""
        cu = driver()
        self._config.hStream = cu.CUstream(int(stream))
        call(cu.cuLaunchKernelEx, self._config, self.function, arguments.address, 0)

    def registers(self) -> int:
        """Registers a thread, as the driver counts them."""
        name = driver().CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS
        return int(call(driver().cuFuncGetAttribute, name, self.function))

    def unload(self) -> None:
        try:
            call(driver().cuModuleUnload, self._module)
        except DeviceFault as fault:
            if not fault.sticky:
                raise


class Arguments:
    """Kernel arguments in host memory, laid out as the driver wants them: an array of pointers to values.

    Keep the object as long as launches may read it.
    """

    def __init__(self, plan: LaunchPlan, addresses: Mapping[str, int]) -> None:
        self._values: list[Any] = []
        self._pointers = (ctypes.c_void_p * max(1, len(plan.params)))()
        for index, param in enumerate(plan.params):
            if isinstance(param, PointerParam):
                value = ctypes.c_uint64(addresses[param.tensor])
                self._values.append(value)
                self._pointers[index] = ctypes.addressof(value)
            else:
                encoded = encode(param, plan.tensors[param.tensor], addresses[param.tensor])
                self._pointers[index] = self._aligned(encoded)

    @property
    def address(self) -> int:
        """Address of the array of pointers."""
        return ctypes.addressof(self._pointers)

    def _aligned(self, encoded: Any) -> int:
        """The map's bytes at an aligned address, which the bindings do not promise."""
        room = ctypes.create_string_buffer(BYTES + _MAP_ALIGNMENT)
        start = -(-ctypes.addressof(room) // _MAP_ALIGNMENT) * _MAP_ALIGNMENT
        ctypes.memmove(start, int(encoded.getPtr()), BYTES)
        self._values.append(room)
        return start


def run(gpu: Gpu, cubin: bytes, plan: LaunchPlan, inputs: dict[str, Array]) -> Outcome:
    """Launch once on fresh tensors and read back.

    `inputs`: by name, of the plan's shapes and dtypes. Raises DeviceFault where the launch fails or the
    kernel crashes, ValueError for inputs that do not fit the plan.
    """
    with LoadedKernel(gpu, cubin, plan) as kernel, Tensors(plan) as tensors:
        tensors.fill(inputs)
        kernel.launch(kernel.bind(tensors.addresses))
        call(driver().cuCtxSynchronize)
        outputs = tensors.outputs()
        return Outcome(outputs, tensors.inspect(inputs, outputs))
