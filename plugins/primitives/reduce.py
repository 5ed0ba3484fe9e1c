"""reduce: maxima and sums of a fragment, within each warp or within each thread

Takes
    `warp_max(v)`, `warp_sum(v)`: a row held as vectors; every lane of the warp gets the result over the
    elements that *this warp* holds, phantoms included. `reduce_max(p)`, `reduce_sum(p)`: a replicated
    fragment, by each lane for itself.
Touches
    Registers only; the lanes exchange values by butterfly shuffles.
Completes when
    Program order.
Source
    PTX ISA, "shfl.sync". Sums are taken in f32, pairwise across lanes after each thread's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.codegen.pieces import loop
from cake.ir.layouts import LANES, REPLICATED, Replicated, Vector
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

COMBINE = {"max": ("fmaxf({0}, {1})", "__int_as_float(0xff800000)"), "sum": ("{0} + {1}", "0.0f")}


def _combine(name: str, data: np.ndarray[Any, Any], axis: int | None) -> np.ndarray[Any, Any]:
    if name.endswith("max"):
        return np.asarray(np.fmax.reduce(data, axis=axis), np.float32)
    return np.asarray(np.sum(data, axis=axis, dtype=np.float32), np.float32)


class WarpReduce(Primitive):
    """Over the elements of one warp."""

    names = ("warp_max", "warp_sum")
    parameters = (parameter("value", "fragment"),)
    uses = ("alu.lanes", "alu.latency", "shuffle.latency", "shared.bytes")

    def signature(self, site: Site) -> Type | None:
        value = site.fragment("value")
        if value.dtype is not DType.f32:
            raise site.refuse(
                "value", f"reductions are in f32, this is {value.dtype.value}", help="cast(..., f32)"
            )
        if not isinstance(value.layout, Vector):
            raise site.refuse("value", f"a warp reduces rows held as vectors, not {value.layout.name}")
        return FragmentType(DType.f32, (), REPLICATED)

    def effects(self, op: Op) -> Sequence[Effect]:
        return ()

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        kind = op.site.fragment("value")
        assert isinstance(kind.layout, Vector)
        data = op.args["value"].array.reshape(-1, LANES, kind.layout.width)
        lanes = _combine(op.site.call.name, _combine(op.site.call.name, data, 2), 0)
        while lanes.size > 1:
            half = lanes.size // 2
            lanes = _combine(op.site.call.name, np.stack([lanes[:half], lanes[half:]]), 0)
        return lanes.reshape(())

    def time(self, op: Op, parameters: Parameters) -> Use:
        count = op.site.fragment("value").registers
        alu = (count + 5) * 32 / parameters("alu.lanes")
        shared = 5 * 128 / parameters("shared.bytes")
        return Use(count + 10, {"alu": alu, "shared": shared}, 5 * parameters("shuffle.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        value, result = op.args["value"], op.result
        assert result is not None
        text, _ = COMBINE[op.site.call.name.split("_")[1]]
        r = f"{result.name}[0]"
        out.line(f"{r} = {value.name}[0];")
        out.line("#pragma unroll")
        out.line(f"for (int i_ = 1; i_ < {value.count}; ++i_) {r} = {text.format(r, f'{value.name}[i_]')};")
        out.line("#pragma unroll")
        shuffled = f"__shfl_xor_sync(0xffffffffu, {r}, m_)"
        out.line(f"for (int m_ = 16; m_ > 0; m_ /= 2) {r} = {text.format(r, shuffled)};")

    cases = (
        Good(
            "the sum of a row held by one warp",
            """
@kernel(arch="sm_80")
def total(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=2, fill=0.0)
        store(y[:], v * 0.0 + warp_sum(v), vector=2)
""",
            dims={"N": 200},
            expect=lambda i: {"y": np.full(200, i["x"].sum(dtype=np.float64))},
            rtol=1e-5,
        ),
        Good(
            "the maximum with phantoms at -inf",
            """
@kernel(arch="sm_80")
def peak(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=-inf)
        store(y[:], minimum(v, -100.0) * 0.0 + warp_max(v), vector=1)
""",
            dims={"N": 40},
            expect=lambda i: {"y": np.full(40, i["x"].max())},
        ),
        Bad(
            "an accumulator",
            """
@kernel(arch="sm_80")
def wrong(y: GlobalOut[f32, M, N]):
    grid(1)
    with role("tile", warps=1):
        s = warp_sum(zeros(f32, 16, 8, layout="mma"))  #! type/operand
""",
            dims={"M": 16, "N": 8},
        ),
    )


class Reduce(Primitive):
    """Over a replicated fragment: each lane on its own."""

    names = ("reduce_max", "reduce_sum")
    parameters = (parameter("value", "fragment"),)
    uses = ("alu.lanes", "alu.latency")

    def signature(self, site: Site) -> Type | None:
        value = site.fragment("value")
        if value.dtype is not DType.f32 or not isinstance(value.layout, Replicated):
            raise site.refuse(
                "value", "each lane reduces a replicated f32 fragment", help="use warp_max / warp_sum"
            )
        return FragmentType(DType.f32, (), REPLICATED)

    def effects(self, op: Op) -> Sequence[Effect]:
        return ()

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        return _combine(op.site.call.name, op.args["value"].array, None).reshape(())

    def time(self, op: Op, parameters: Parameters) -> Use:
        count = op.site.fragment("value").registers
        return Use(count, {"alu": count * 32 / parameters("alu.lanes")}, count * parameters("alu.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        value, result = op.args["value"], op.result
        assert result is not None
        text, start = COMBINE[op.site.call.name.split("_")[1]]
        r = f"{result.name}[0]"
        out.line(f"{r} = {start};")
        with loop(out, "i_", value.count):
            out.line(f"{r} = {text.format(r, f'{value.name}[i_]')};")

    cases = (
        Good(
            "over the partial results of four warps",
            """
@kernel(arch="sm_80")
def total(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 4]
    with role("row", warps=4):
        v = load(x[:], vector=1, fill=0.0)
        store(s[warp], warp_sum(v))
        cta_sync()
        store(y[:], v * 0.0 + reduce_sum(load(s[:])), vector=1)
""",
            dims={"N": 120},
            expect=lambda i: {"y": np.full(120, i["x"].sum(dtype=np.float64))},
            rtol=1e-5,
        ),
        Good(
            "the largest of them",
            """
@kernel(arch="sm_80")
def peak(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 2]
    with role("row", warps=2):
        v = load(x[:], vector=1, fill=-inf)
        store(s[warp], warp_max(v))
        cta_sync()
        store(y[:], minimum(v, -100.0) * 0.0 + reduce_max(load(s[:])), vector=1)
""",
            dims={"N": 60},
            expect=lambda i: {"y": np.full(60, i["x"].max())},
        ),
        Bad(
            "a row",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        s = reduce_sum(load(x[:], vector=1, fill=0.0))  #! type/operand
""",
            dims={"N": 32},
        ),
    )
