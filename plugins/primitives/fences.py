"""fence_async, fence_mbarrier_init: order this thread's accesses towards the asynchronous engines

Takes
    `fence_async()`, `fence_async("global")` or `fence_async("all")`; `fence_mbarrier_init()`.
Touches
    Nothing. `fence_async()` publishes the earlier generic accesses of the executing threads to shared memory
    to the async proxy (copy engine, tensor cores), "global" those to global tensors, "all" both. Copies of
    cp.async that are known to be complete count as accesses. `fence_mbarrier_init()` publishes
    initializations of mbarriers.
Completes when
    Program order. Other threads know of it only after a rendezvous or an mbarrier phase that follows.
Source
    PTX ISA, "membar / fence": fence.proxy.async, fence.mbarrier_init; "Memory Consistency Model",
    proxies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cake.ir.types import Type
from cake.kinds.primitive import Bad, Good, Lowering, Op, Parameters, Primitive, Site, Use, Writer, parameter
from cake.machine.effects import Effect, Fence, FenceKind

SPACES: Mapping[str, tuple[tuple[FenceKind, ...], str]] = {
    "shared": (("async_proxy",), ".shared::cta"),
    "global": (("async_global",), ".global"),
    "all": (("async_proxy", "async_global"), ""),
}
"""What is published -> the fences it is to the machine, and the suffix of fence.proxy.async."""


class FenceAsync(Primitive):
    """fence.proxy.async: each lane publishes its own writes, so all lanes execute it."""

    names = ("fence_async",)
    archs = ">=sm_90"
    parameters = (parameter("space", "text", default="shared"),)
    uses = ("fence.latency",)

    def signature(self, site: Site) -> Type | None:
        if site.text("space") not in SPACES:
            words = ", ".join(f'"{word}"' for word in SPACES)
            raise site.refuse("space", f"the accesses to publish are {words}")
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return [Fence(kind) for kind in SPACES[op.args["space"]][0]]

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1, latency=parameters("fence.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm(f"fence.proxy.async{SPACES[op.site.text('space')][1]};")

    cases = (
        Good(
            "before a bulk store reads what the warp wrote",
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
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 16, "N": 64},
            expect=lambda inputs: {"y": [[3.0] * 64] * 16},
        ),
        Good(
            "alone",
            """
@kernel(arch="sm_120a")
def nothing(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        fence_async()
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
""",
            dims={"N": 32},
            expect=lambda inputs: {"y": inputs["x"]},
        ),
        Good(
            "before the copy engine reads what the warp stored in global memory",
            """
@kernel(arch="sm_90a")
def copy(x: Global[f32, N], y: GlobalOut[f32, N], z: GlobalOut[f32, N]):
    require(N == 128)
    grid(1)
    s = Shared[f32, 128]
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("row", warps=1):
        store(y[:], load(x[:], vector=4), vector=4)
        fence_async("all")
        with one_thread():
            expect_bytes(a, s)
            tma_load(s, y[0:+128], a)
        wait(a, 0)
        store(z[:], load(s[:], vector=4), vector=4)
""",
            dims={"N": 128},
            expect=lambda inputs: {"y": inputs["x"], "z": inputs["x"]},
        ),
        Bad(
            "in a space that is none",
            """
@kernel(arch="sm_90a")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warps=1):
        fence_async("local")  #! type/operand
""",
            dims={"N": 32},
        ),
        Bad(
            "in one thread, for writes of all lanes",
            """
@kernel(arch="sm_90a")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warps=1):
        with one_thread():
            fence_async()  #! type/collective
""",
            dims={"N": 32},
        ),
        Bad(
            "before Hopper",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warps=1):
        fence_async()  #! arch/unsupported
""",
            dims={"N": 32},
        ),
    )


class FenceMbarrierInit(Primitive):
    """fence.mbarrier_init: executed by the thread that initialized."""

    names = ("fence_mbarrier_init",)
    archs = ">=sm_90"
    single = True
    collective = False
    uses = ("fence.latency",)

    def signature(self, site: Site) -> Type | None:
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (Fence("mbarrier_init"),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1, latency=parameters("fence.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm("fence.mbarrier_init.release.cluster;")

    cases = (
        Good(
            "between initialization and use by another warp",
            """
@kernel(arch="sm_90a")
def signal(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    ready = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(ready)
        fence_mbarrier_init()
    cta_sync()
    with role("first", warps=1):
        arrive(ready)
    with role("second", warps=1):
        wait(ready, 0)
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
""",
            dims={"N": 32},
            expect=lambda inputs: {"y": inputs["x"]},
        ),
        Good(
            "once for several barriers",
            """
@kernel(arch="sm_100a")
def rings(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    full = MBarrier[2](arrivals=1)
    free = MBarrier[2](arrivals=1)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        fence_mbarrier_init()
    cta_sync()
    with role("first", warps=1):
        for j in range(4):
            s, parity = ring(j, 2)
            wait(free[s], parity ^ 1)
            arrive(full[s])
    with role("second", warps=1):
        for j in range(4):
            s, parity = ring(j, 2)
            wait(full[s], parity)
            arrive(free[s])
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
""",
            dims={"N": 32},
            expect=lambda inputs: {"y": inputs["x"]},
        ),
        Bad(
            "by a whole warp",
            """
@kernel(arch="sm_90a")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warps=1):
        fence_mbarrier_init()  #! type/one-thread
""",
            dims={"N": 32},
        ),
    )
