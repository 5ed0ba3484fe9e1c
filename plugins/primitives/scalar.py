"""scalar: a whole number from global memory, declared to lie between two bounds

Takes
    `n = scalar(lengths[b], low, high)`: one element of an i32 or u32 tensor that the kernel only reads, and
    the bounds by contract; inside a role. The number may bound loops, decide branches and place windows:
    lengths of sequences, work lists, coordinates of tiles.
Touches
    Reads the element through the generic proxy, all lanes the same.
Completes when
    The next instruction that uses it starts.
Source
    PTX ISA, "ld.global". The verifier runs a kernel with such numbers at their lower bounds, at their upper
    bounds, and mixed, the same place the same number; with values, a number outside its bounds is a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.ir.types import INT, DType, Type
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
    Window,
    Writer,
    parameter,
)
from cake.machine.effects import Effect, Inside, Read


class Scalar(Primitive):
    """One element, by every lane."""

    names = ("scalar",)
    scalar = True
    collective = False
    parameters = (parameter("window", "global"), parameter("low", "int"), parameter("high", "int"))
    uses = ("global.latency",)

    def signature(self, site: Site) -> Type | None:
        window = site.region("window")
        if window.shape or window.dtype not in (DType.i32, DType.u32):
            raise site.refuse("window", "one element of a tensor of i32 or u32", help="lengths[b]")
        if window.buffer.output:
            raise site.refuse("window", f"`{window.buffer.name}` is written here: its numbers may change")
        return INT

    def effects(self, op: Op) -> Sequence[Effect]:
        region = op.region("window")
        return (Inside(region), Read(region.buffer, region.box))

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        return memory.read(op.region("window")).reshape(())

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(2, {"lsu": 1}, parameters("global.latency"), l2_read=32)

    def lower(self, op: Lowering, out: Writer) -> None:
        window: Window = op.args["window"]
        index = out.global_index(window, ["0"] * len(window.size))
        text = f"{window.buffer.name}[{index}]"
        # Lanes agree by construction; the compiler is told, so that control flow stays uniform.
        uniform = text if op.site.scope.elected else f"__shfl_sync(0xffffffffu, {text}, 0)"
        out.line(f"{op.target} = {uniform};")

    cases = (
        Good(
            "rows of different lengths",
            """
@kernel(arch="sm_80")
def ragged(x: Global[f32, M, N], lengths: Global[i32, M], y: GlobalOut[f32, M, N]):
    require(N == 32)
    grid(M)
    with role("row", warps=1):
        n = scalar(lengths[block], -100, 100)
        v = load(x[block, :], vector=1, fill=0.0)
        for i in range(max(n, 0) // 40):
            v = v + 1.0
        store(y[block, :], v, vector=1)
""",
            dims={"M": 5, "N": 32},
            expect=lambda i: {"y": i["x"] + (np.maximum(i["lengths"], 0) // 40)[:, None]},
            rtol=1e-6,
        ),
        Bad(
            "a fraction",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        n = scalar(x[0], 0, 5)  #! type/operand
""",
            dims={"N": 32},
        ),
        Bad(
            "used without a name",
            """
@kernel(arch="sm_80")
def wrong(x: Global[i32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        for i in range(scalar(x[0], 0, 5)):  #! type/assign
            j = i
""",
            dims={"N": 32},
        ),
    )
