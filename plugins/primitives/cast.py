"""cast: conversion of a fragment to another dtype, in the same layout

Takes
    `cast(v, f32)` from bf16, f16, i32 or u32; `cast(v, bf16)`, `cast(v, f16)`, `cast(v, i32)`,
    `cast(v, u32)` from f32; between i32 and u32.
Touches
    Registers only.
Completes when
    Program order.
Source
    PTX ISA, "cvt": to 16 bits rounds to nearest even, two values at once; 16 bits to f32 is exact; integers
    to f32 round to nearest even; f32 to integers cuts the fraction off and saturates. Between i32 and u32 the
    bits stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.codegen.pieces import as_float, loop, pack
from cake.ir.types import DType, FragmentType, Type
from cake.kinds.primitive import (
    Bad,
    Good,
    Lowering,
    Memory,
    Op,
    Parameters,
    Primitive,
    Site,
    Use,
    Writer,
    parameter,
)
from cake.machine.effects import Effect

HALVES = (DType.bf16, DType.f16)
INTEGERS = (DType.i32, DType.u32)
PAIRS = {(a, DType.f32) for a in (*HALVES, *INTEGERS)} | {(DType.f32, a) for a in (*HALVES, *INTEGERS)}
PAIRS |= {INTEGERS, INTEGERS[::-1]}


class Cast(Primitive):
    """Between f32 and the 16-bit floats."""

    names = ("cast",)
    parameters = (parameter("value", "fragment"), parameter("dtype", "dtype"))
    uses = ("alu.lanes", "alu.latency")

    def signature(self, site: Site) -> Type | None:
        value, dtype = site.fragment("value"), site.dtype("dtype").dtype
        if value.dtype is dtype:
            raise site.refuse("dtype", f"the fragment is {dtype.value} already")
        if (value.dtype, dtype) not in PAIRS:
            raise site.refuse("dtype", f"no conversion from {value.dtype.value} to {dtype.value}")
        return FragmentType(dtype, value.shape, value.layout)

    def effects(self, op: Op) -> Sequence[Effect]:
        return ()

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        array, kind = op.args["value"].array, op.result.dtype.numpy
        with np.errstate(all="ignore"):
            if op.result.dtype in INTEGERS and array.dtype.kind == "f":
                limits = np.iinfo(kind)
                clean = np.clip(np.nan_to_num(np.trunc(np.float64(array))), limits.min, limits.max)
                return np.asarray(clean.astype(kind))
            return np.asarray(array.astype(kind))

    def time(self, op: Op, parameters: Parameters) -> Use:
        count = op.result.registers / (2 if op.result.dtype in HALVES else 1)
        return Use(count, {"alu": count * 32 / parameters("alu.lanes")}, parameters("alu.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        result, value = op.result, op.args["value"]
        assert result is not None
        if value.type.dtype in INTEGERS or result.type.dtype in INTEGERS:
            to = {DType.f32: "float", DType.i32: "int", DType.u32: "unsigned"}[result.type.dtype]
            cut = {"int": "__float2int_rz", "unsigned": "__float2uint_rz"}.get(to, "")
            convert = cut if value.type.dtype is DType.f32 else f"static_cast<{to}>"
            with loop(out, "i_", result.count):
                out.line(f"{result.name}[i_] = {convert}({value.name}[i_]);")
            return
        if result.type.dtype is DType.f32:
            with loop(out, "i_", result.count):
                out.line(f"{result.name}[i_] = {as_float(out, value, 'i_')};")
            return
        elements = result.type.registers
        with loop(out, "i_", result.count):
            high = f"{value.name}[i_ * 2 + 1]"
            if elements % 2:
                high = f"(i_ * 2 + 1 < {elements} ? {value.name}[i_ * 2 + (i_ * 2 + 1 < {elements})] : 0.0f)"
            out.line(f"{result.name}[i_] = {pack(out, result.type.dtype, f'{value.name}[i_ * 2]', high)};")

    cases = (
        Good(
            "to bf16 and back",
            """
@kernel(arch="sm_80")
def round_trip(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        store(y[:], cast(cast(load(x[:], vector=1, fill=0.0), bf16), f32), vector=1)
""",
            dims={"N": 96},
            expect=lambda i: {"y": i["x"].astype(DType.bf16.numpy).astype(np.float32)},
        ),
        Good(
            "to f16",
            """
@kernel(arch="sm_80")
def narrow(x: Global[f32, N], y: GlobalOut[f16, N]):
    grid(1)
    with role("row", warps=1):
        store(y[:], cast(load(x[:], vector=4, fill=0.0), f16), vector=4)
""",
            dims={"N": 256},
            expect=lambda i: {"y": i["x"].astype(np.float16)},
        ),
        Good(
            "to integers, the fraction cut off, and back",
            """
@kernel(arch="sm_80")
def whole(x: Global[f32, N], y: GlobalOut[f32, N], z: GlobalOut[u32, N]):
    grid(1)
    with role("row", warps=1):
        v = cast(load(x[:], vector=1, fill=0.0) * 10.0, i32)
        store(y[:], cast(v, f32), vector=1)
        store(z[:], cast(v, u32), vector=1)
""",
            dims={"N": 96},
            expect=lambda i: {
                "y": np.trunc(i["x"] * np.float32(10)),
                "z": np.trunc(i["x"] * np.float32(10)).astype(np.int32).view(np.uint32),
            },
        ),
        Bad(
            "to the dtype it has",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = cast(load(x[:], vector=1, fill=0.0), f32)  #! type/operand
""",
            dims={"N": 32},
        ),
    )
