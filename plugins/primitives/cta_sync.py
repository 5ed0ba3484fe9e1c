"""cta_sync: all warps of the CTA meet (barrier 0)

Takes
    Nothing. Every warp of the CTA must execute it the same number of times.
Touches
    Nothing; it orders generic accesses of all threads. It is no proxy fence.
Completes when
    The last warp has come.
Source
    PTX ISA, "bar{.cta}, barrier{.cta}".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cake.ir.types import Type
from cake.kinds.primitive import Bad, Good, Lowering, Op, Parameters, Primitive, Site, Use, Writer
from cake.machine.effects import Effect, Rendezvous


class CtaSync(Primitive):
    """__syncthreads."""

    names = ("cta_sync",)
    uses = ("barrier.latency",)

    def signature(self, site: Site) -> Type | None:
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (Rendezvous(0, 0),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1, {}, parameters("barrier.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        out.line("__syncthreads();")

    cases = (
        Good(
            "between writers and readers",
            """
@kernel(arch="sm_80")
def turn(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 2]
    with role("row", warps=2):
        v = load(x[:], vector=1, fill=0.0)
        store(s[warp], warp_sum(v))
        cta_sync()
        store(y[:], v * 0.0 + load(s[1 - warp]), vector=1)
""",
            dims={"N": 64},
            expect=lambda i: {"y": np.repeat([i["x"][32:].sum(), i["x"][:32].sum()], 32)},
            rtol=1e-5,
        ),
        Good(
            "before the roles part",
            """
@kernel(arch="sm_80")
def start(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    cta_sync()
    with role("row", warps=1):
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
    with role("idle", warps=1):
        a = 1
""",
            dims={"N": 32},
            expect=lambda i: {"y": i["x"]},
        ),
        Bad(
            "in one thread",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warps=1):
        with one_thread():
            cta_sync()  #! type/collective
""",
            dims={"N": 32},
        ),
    )
