"""Tensor maps: what the copy engine is told about a tensor, encoded by the driver for one address."""

from __future__ import annotations

from typing import Any

from cake.codegen.plan import TensorMapParam, TensorSpec
from cake.device.driver import DeviceFault, call, driver
from cake.ir.types import DType

BYTES = 128
"""Size of an encoded map."""

_TYPES = {
    "bf16": "BFLOAT16",
    "f16": "FLOAT16",
    "f32": "FLOAT32",
    "i32": "INT32",
    "u32": "UINT32",
    "e4m3": "UINT8",
    "e5m2": "UINT8",
}
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}
_MAX_BOX, _MAX_RANK, _STRIDE = 256, 5, 16


def encode(param: TensorMapParam, spec: TensorSpec, address: int) -> Any:
    """The driver's CUtensorMap of a contiguous row-major tensor at device address `address`.

    Elements outside the tensor read as zero and are not written. Raises DeviceFault (`device/tensor-map`)
    where the copy engine cannot address the tensor so.
    """
    refusal = why_not(param, spec, address)
    if refusal:
        raise DeviceFault("device/tensor-map", f"tensor map of {param.tensor}: {refusal}")
    cu = driver()
    size = DType(spec.dtype).bytes
    shape, box = spec.shape[::-1], param.box[::-1]  # the driver counts from the contiguous axis outwards
    strides, step = [], size
    for axis in shape[:-1]:
        step *= axis
        strides.append(cu.cuuint64_t(step))
    # A single axis has no stride, but the driver takes no empty list.
    strides = strides or [cu.cuuint64_t(_STRIDE)]
    return call(
        cu.cuTensorMapEncodeTiled,
        getattr(cu.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[spec.dtype]}"),
        len(shape),
        address,
        [cu.cuuint64_t(axis) for axis in shape],
        strides,
        [cu.cuuint32_t(extent) for extent in box],
        [cu.cuuint32_t(1) for _ in shape],
        cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(cu.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[param.swizzle]}"),
        cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )


def why_not(param: TensorMapParam, spec: TensorSpec, address: int = 0) -> str:
    """What the copy engine cannot do about this map, in words; empty where it can."""
    rank, size = len(spec.shape), DType(spec.dtype).bytes
    row, inner = spec.shape[-1] * size, param.box[-1] * size
    if not 1 <= rank <= _MAX_RANK:
        return f"{rank} axes, the copy engine takes 1 to {_MAX_RANK}"
    if len(param.box) != rank:
        return f"a box of {len(param.box)} axes for a tensor of {rank}"
    if param.swizzle not in _SWIZZLES:
        return f"no swizzle of {param.swizzle} bytes"
    if any(not 1 <= extent <= _MAX_BOX for extent in param.box):
        return f"the box {param.box} has an axis outside 1 to {_MAX_BOX}"
    if rank > 1 and row % _STRIDE:
        return f"rows are {row} bytes apart, not a multiple of {_STRIDE}"
    if inner % _STRIDE:
        return f"rows of the box are {inner} bytes, not a multiple of {_STRIDE}"
    if param.swizzle and inner > param.swizzle:
        return f"rows of the box are {inner} bytes, over the swizzle span of {param.swizzle}"
    if address % _STRIDE:
        return f"the tensor starts at an address that is not a multiple of {_STRIDE}"
    return ""
