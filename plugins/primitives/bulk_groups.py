"""bulk_commit, bulk_wait_read, bulk_wait: groups of bulk stores of one thread

Takes
    `bulk_commit()` closes the group of the thread's bulk stores since the last commit;
    `bulk_wait_read(n)` and `bulk_wait(n)` block until at most `n` of its groups are in flight. The thread
    that stored executes them.
Touches
    Nothing.
Completes when
    `bulk_wait_read`: the older groups have read their shared memory, which may be written again;
    `bulk_wait`: their writes are visible to the thread as well.
Source
    PTX ISA, "cp.async.bulk.commit_group", "cp.async.bulk.wait_group".
"""

from __future__ import annotations

from collections.abc import Sequence

from cake.ir.types import Type
from cake.kinds.primitive import Bad, Good, Lowering, Op, Parameters, Primitive, Site, Use, Writer, parameter
from cake.machine.effects import Commit, Effect, WaitGroup


class BulkCommit(Primitive):
    """cp.async.bulk.commit_group."""

    names = ("bulk_commit",)
    archs = ">=sm_90"
    single = True
    collective = False

    def signature(self, site: Site) -> Type | None:
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (Commit("bulk"),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm("cp.async.bulk.commit_group;")

    cases = (
        Good(
            "two stores in one group",
            """
@kernel(arch="sm_90a")
def fill(y: GlobalOut[bf16, M, N]):
    grid(1)
    s = Shared[bf16, 16, 64](swizzle=128)
    with role("tile", warps=1):
        stmatrix(s[:, :], cast(zeros(f32, 16, 64, layout="mma") + 3.0, bf16))
        fence_async()
        with one_thread():
            tma_store(y[0:+16, 0:+64], s)
            tma_store(y[16:+16, 0:+64], s)
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 32, "N": 64},
            expect=lambda inputs: {"y": [[3.0] * 64] * 32},
        ),
        Good(
            "an empty group",
            """
@kernel(arch="sm_100a")
def nothing(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        with one_thread():
            bulk_commit()
            bulk_wait(0)
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
""",
            dims={"N": 32},
            expect=lambda inputs: {"y": inputs["x"]},
        ),
        Bad(
            "by a whole warp, whose other lanes stored nothing",
            """
@kernel(arch="sm_90a")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warps=1):
        bulk_commit()  #! type/one-thread
""",
            dims={"N": 32},
        ),
    )


class BulkWait(Primitive):
    """cp.async.bulk.wait_group, with and without .read."""

    names = ("bulk_wait_read", "bulk_wait")
    archs = ">=sm_90"
    single = True
    collective = False
    parameters = (parameter("pending", "int"),)

    def signature(self, site: Site) -> Type | None:
        if site.integer("pending") < 0:
            raise site.refuse("pending", "`pending` counts groups: 0 or more")
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (WaitGroup("bulk", op.args["pending"], op.site.call.name.endswith("_read")),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        read = ".read" if op.site.call.name.endswith("_read") else ""
        out.asm(f"cp.async.bulk.wait_group{read} {op.site.integer('pending')};")

    cases = (
        Good(
            "before the buffer is written again",
            """
@kernel(arch="sm_90a")
def fill(y: GlobalOut[bf16, M, N]):
    grid(1)
    s = Shared[bf16, 16, 64](swizzle=128)
    with role("tile", warps=1):
        v = zeros(f32, 16, 64, layout="mma")
        for i in range(2):
            with one_thread():
                bulk_wait_read(0)
            v = v + 1.0
            stmatrix(s[:, :], cast(v, bf16))
            fence_async()
            with one_thread():
                tma_store(y[i * 16:+16, 0:+64], s)
                bulk_commit()
        with one_thread():
            bulk_wait(0)
""",
            dims={"M": 32, "N": 64},
            expect=lambda inputs: {"y": [[1.0] * 64] * 16 + [[2.0] * 64] * 16},
        ),
        Good(
            "one group stays in flight",
            """
@kernel(arch="sm_120a")
def fill(y: GlobalOut[bf16, M, N]):
    grid(1)
    s = Shared[bf16, 2, 16, 64](swizzle=128)
    with role("tile", warps=1):
        v = zeros(f32, 16, 64, layout="mma")
        for i in range(4):
            with one_thread():
                bulk_wait_read(1)
            v = v + 1.0
            stmatrix(s[i % 2], cast(v, bf16))
            fence_async()
            with one_thread():
                tma_store(y[i * 16:+16, 0:+64], s[i % 2])
                bulk_commit()
        with one_thread():
            bulk_wait_read(0)
""",
            dims={"M": 64, "N": 64},
            expect=lambda inputs: {"y": [[float(1 + row // 16)] * 64 for row in range(64)]},
        ),
        Bad(
            "a number of groups known at run time only",
            """
@kernel(arch="sm_90a")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warps=1):
        with one_thread():
            bulk_wait(block)  #! type/operand
""",
            dims={"N": 32},
        ),
    )
