"""A staging buffer is written again while the copy engine still reads it

Finds
    Shared memory that a bulk store (`tma_store`) reads is overwritten before its group is known to have
    read: no `bulk_wait_read`, too deep a wait, or no rendezvous between the waiting thread and the writers.

Why
    A bulk store reads its source any time until the wait of the thread that committed it. Only that thread
    knows.

Mend
    The committing thread executes `bulk_wait_read(n)`, then all writers meet it (`named_sync`) before they
    write.

Silent when
    The reader is the tensor core (sync/early-release).

Source
    PTX ISA, "cp.async.bulk.wait_group.read".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Race

MENDED = """
@kernel(arch="sm_90a")
def stage(y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("tile", warpgroups=1):
        for i in range(2):
            with one_thread():
                bulk_wait_read(0)
            named_sync(1, warps=4)
            stmatrix(s[:, :], cast(zeros(f32, 64, 64, layout="wgmma"), bf16))
            fence_async()
            named_sync(1, warps=4)
            with one_thread():
                tma_store(y[i * 64:+64, 0:+64], s[:, :])
                bulk_commit()
        with one_thread():
            bulk_wait_read(0)
"""


class StagingReuse(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "`{later}` overwrites {buffer} while the copy engine may still read it for `{earlier}`"
    help = (
        "call bulk_wait_read(0) in the thread that committed line {line}, then a named_sync(...) "
        "of all writers"
    )
    cases = (
        Bad(
            "no wait before the second pass",
            """
@kernel(arch="sm_90a")
def stage(y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("tile", warpgroups=1):
        for i in range(2):
            with one_thread():
                pass
            named_sync(1, warps=4)
            stmatrix(s[:, :], cast(zeros(f32, 64, 64, layout="wgmma"), bf16))  #!
            fence_async()
            named_sync(1, warps=4)
            with one_thread():
                tma_store(y[i * 64:+64, 0:+64], s[:, :])  #> still be reading
                bulk_commit()
        with one_thread():
            bulk_wait_read(0)
""",
            fixed=MENDED,
            dims={"M": 128, "N": 64},
        ),
        Bad(
            "only the waiting thread knows",
            """
@kernel(arch="sm_90a")
def stage(y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("tile", warpgroups=1):
        for i in range(2):
            with one_thread():
                bulk_wait_read(0)
            stmatrix(s[:, :], cast(zeros(f32, 64, 64, layout="wgmma"), bf16))  #!
            fence_async()
            named_sync(1, warps=4)
            with one_thread():
                tma_store(y[i * 64:+64, 0:+64], s[:, :])
                bulk_commit()
        with one_thread():
            bulk_wait_read(0)
""",
            fixed=MENDED,
            dims={"M": 128, "N": 64},
        ),
        Good("waited for and met", MENDED, dims={"M": 128, "N": 64}),
    )

    def claims(self, finding: Finding) -> bool:
        match finding:
            case Race(earlier=earlier, later=later, cause="incomplete" | "unordered"):
                return later.write and not earlier.write and earlier.completion == "bulk"
        return False

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for race in filter(self.claims, facts.of(Race)):
            earlier, later = race.earlier, race.later
            yield self.report(
                later.span,
                "overwritten here",
                secondary=((earlier.span, "may still be reading"),),
                buffer=later.buffer.name,
                earlier=earlier.primitive,
                later=later.primitive,
                line=earlier.span.line,
            )
