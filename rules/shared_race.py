"""Threads use the same bytes with nothing that orders them

Finds
    Two accesses to the same bytes of shared memory, at least one of them a write, by different warps (or by
    a warp and the copy engine on behalf of another), with no path of synchronization from one to the other.

Why
    The hardware promises nothing about their order; which value is read changes from run to run.

Mend
    Let the warps meet in between (`cta_sync`, `named_sync`), or arrive and wait on an mbarrier.

Silent when
    The accesses are ordered but cross the proxies (the unfenced rules), or one is asynchronous and not
    known to be complete (early-release, staging-reuse, unawaited-tma-load).

Source
    PTX ISA, "Memory Consistency Model: Causality order".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Race

MENDED = """
@kernel(arch="sm_80")
def total(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 4]
    with role("row", warps=4):
        v = load(x[:], vector=1, fill=0.0)
        store(s[warp], warp_sum(v))
        cta_sync()
        store(y[:], v * reduce_sum(load(s[:])), vector=1)
"""

TWO_NAMES = """
@kernel(arch="sm_80")
def total(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    row = Shared[f32, 128]
    sums = Shared[f32, 4](overlay=row, offset=256)
    with role("row", warps=4):
        store(row[:], load(x[:], vector=1, fill=0.0), vector=1)
        cta_sync()
        v = load(row[:], vector=1, fill=0.0){read}
        {sync}
        store(sums[warp], warp_sum(v)){written}
        cta_sync()
        store(y[:], v * reduce_sum(load(sums[:])), vector=1)
"""


class SharedRace(Rule):
    family = "sync"
    message = "`{later}` and `{earlier}` use the same bytes of {buffer}, and nothing orders them"
    help = "let the warps of both accesses meet in between: cta_sync() or named_sync(...) after line {line}"
    cases = (
        Bad(
            "partial sums without a barrier",
            """
@kernel(arch="sm_80")
def total(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 4]
    with role("row", warps=4):
        v = load(x[:], vector=1, fill=0.0)
        store(s[warp], warp_sum(v))  #> not ordered
        store(y[:], v * reduce_sum(load(s[:])), vector=1)  #!
""",
            fixed=MENDED,
            dims={"N": 128},
        ),
        Bad(
            "two buffers over the same bytes",
            TWO_NAMES.format(read="  #!", sync="pass", written="  #> not ordered"),
            fixed=TWO_NAMES.format(read="", sync="cta_sync()", written=""),
            dims={"N": 128},
        ),
        Good("the warps meet", MENDED, dims={"N": 128}),
    )

    def claims(self, finding: Finding) -> bool:
        match finding:
            case Race(earlier=earlier, later=later, cause="unordered" | "overtaken"):
                in_ring = earlier.asynchronous_write or later.asynchronous_write
                reused = later.write and not earlier.write and earlier.asynchronous
                return earlier.buffer.space == "shared" and not in_ring and not reused
        return False

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for race in filter(self.claims, facts.of(Race)):
            earlier, later = race.earlier, race.later
            yield self.report(
                later.span,
                "this access",
                secondary=((earlier.span, "and this one are not ordered"),),
                buffer=" and ".join(dict.fromkeys((later.buffer.name, earlier.buffer.name))),
                earlier=earlier.primitive,
                later=later.primitive,
                line=earlier.span.line,
            )
