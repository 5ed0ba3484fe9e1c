"""A CTA takes more shared memory than the architecture gives

Finds
    Buffers and mbarriers together, with the slack for 1024-byte alignment of swizzled buffers, exceed the
    opt-in maximum a block of the target.

Why
    The launch fails.

Mend
    Fewer stages, smaller tiles.

Silent when
    Two CTAs would not fit on one SM: that is occupancy, and the cost model's matter.

Source
    CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.ir import nodes as n
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts

LIMITS = {"sm_80": 166912, "sm_89": 101376, "sm_90a": 232448, "sm_100a": 232448, "sm_120a": 101376}
"""Opt-in maximum of dynamic shared memory a block, in bytes."""


class SharedCapacity(Rule):
    family = "res"
    needs = "instance"
    message = "the CTA takes {taken} bytes of shared memory, {arch} gives at most {limit}"
    help = "use fewer stages or smaller tiles: {excess} bytes too many"
    cases = (
        Bad(
            "beyond 163 KiB on sm_80",
            """
@kernel(arch="sm_80")
def big(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 45000]  #!
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        store(s[0], warp_sum(v))
        cta_sync()
        store(y[:], v * load(s[0]), vector=1)
""",
            fixed="""
@kernel(arch="sm_80")
def big(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 40000]
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        store(s[0], warp_sum(v))
        cta_sync()
        store(y[:], v * load(s[0]), vector=1)
""",
            dims={"N": 32},
        ),
        Good(
            "just within",
            """
@kernel(arch="sm_80")
def big(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 41728]
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        store(s[0], warp_sum(v))
        cta_sync()
        store(y[:], v * load(s[0]), vector=1)
""",
            dims={"N": 32},
        ),
    )

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        instance = facts.instance
        swizzled = any(b.swizzle for b in instance.buffers.values())
        taken = instance.shared_bytes + (1024 if swizzled else 0)
        limit = LIMITS[instance.arch]
        if taken <= limit:
            return
        largest = max(
            (s for s in instance.kernel.body if isinstance(s, n.Shared)),
            key=lambda s: instance.buffers[s.name].bytes,
            default=None,
        )
        span = largest.span if largest else instance.kernel.span
        yield self.report(
            span,
            "the largest buffer",
            taken=taken,
            limit=limit,
            arch=instance.arch,
            excess=taken - limit,
        )
