"""A staging buffer is written again while the copy engine still reads it

Finds
    Shared memory that a bulk store (`tma_store`) reads is overwritten before its group is known to have
    read: no `bulk_wait_read`, too deep a wait, or no rendezvous between the waiting thread and the writers.
    Or a copy to another CTA reads it (`bulk_copy(remote(...), ...)`), and the writer does not know from there
    that the bytes have arrived.

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
from cake.machine.effects import BarrierSlot
from cake.machine.facts import Access, Facts, Finding, Race

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


SENT = """
@kernel(arch="sm_90a")
def swap(x: Global[f32, 2, N], y: GlobalOut[f32, 2, N]):
    require(N == 64)
    grid(2)
    cluster(2)
    s = Shared[f32, 2, 64]
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
        expect_bytes(full, s[1])
    cluster_sync()
    with role("row", warps=1):
        store(s[0], load(x[rank, :], vector=2), vector=2)
        fence_async()
        with one_thread():
            bulk_copy(remote(s[1], rank ^ 1), s[0], remote(full, rank ^ 1)){read}
        wait(full, 0)
        {meet}
        store(s[0], load(s[1], vector=2) * 2.0, vector=2){written}
        store(y[rank, :], load(s[0], vector=2), vector=2)
        cluster_sync()
"""


class StagingReuse(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = "`{later}` overwrites {buffer} while the copy engine may still read it for `{earlier}`"
    help = "{mend}"
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
        Bad(
            "what is sent to another CTA",
            SENT.format(read="  #> still be reading", meet="pass", written="  #!"),
            fixed=SENT.format(read="", meet="cluster_sync()", written=""),
            dims={"N": 64},
        ),
        Good("waited for and met", MENDED, dims={"M": 128, "N": 64}),
    )

    def claims(self, finding: Finding) -> bool:
        match finding:
            case Race(earlier=earlier, later=later, cause="incomplete" | "unordered"):
                sent = isinstance(earlier.completion, BarrierSlot)
                reads = not earlier.write and earlier.asynchronous and earlier.proxy == "async"
                return later.write and reads and (sent or earlier.completion == "bulk")
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
                mend=_mend(earlier),
            )


def _mend(earlier: Access) -> str:
    line = earlier.span.line
    if earlier.completion == "bulk":
        return (
            f"call bulk_wait_read(0) in the thread that committed line {line}, then a named_sync(...) of all "
            "writers"
        )
    return f"let the CTA that line {line} fills answer once it has the bytes, and wait for that"
