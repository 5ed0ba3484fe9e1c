"""wgmma_fence, wgmma_commit, wgmma_wait: what orders asynchronous matrix multiplies

Takes
    `wgmma_fence()` before the first wgmma on registers that ordinary instructions wrote; `wgmma_commit()`
    closes a group of the wgmmas since the last commit; `wgmma_wait(n)` blocks until at most `n` groups
    are in flight. All warps of a warpgroup execute them.
Touches
    Nothing; after `wgmma_wait` the accumulators of the completed groups may be used.
Completes when
    Fence and commit at once; `wgmma_wait(n)` when the older groups have completed.
Source
    PTX ISA, "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cake.ir.types import Type
from cake.kinds.primitive import Bad, Good, Lowering, Op, Parameters, Primitive, Site, Use, Writer, parameter
from cake.machine.effects import Commit, Effect, Fence, WaitGroup

TILE = """
@kernel(arch="sm_90a")
def tile(a: Global[bf16, M, K], b: Global[bf16, N, K], c: GlobalOut[f32, M, N]):
    grid(1)
    at = Shared[bf16, 64, 64](swizzle=128)
    bt = Shared[bf16, 16, 64](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("mma", warpgroups=1):
        with one_thread():
            expect_bytes(full, at, bt)
            tma_load(at, a[0:+64, 0:+64], full)
            tma_load(bt, b[0:+16, 0:+64], full)
        acc = zeros(f32, 64, 16, layout="wgmma")
        wait(full, 0)
        BODY
        store(c[0:+64, 0:+16], acc, vector=2)
"""
DIMS = {"M": 64, "N": 16, "K": 64}


def tile(*body: str) -> str:
    """The text of a kernel that computes one 64 x 16 tile by `body`."""
    return TILE.replace("BODY", "\n        ".join(body))


def product(inputs: Mapping[str, np.ndarray[Any, Any]]) -> Mapping[str, np.ndarray[Any, Any]]:
    """What the tile holds when all of k is accumulated once."""
    return {"c": np.float64(inputs["a"]) @ np.float64(inputs["b"]).T}


class WgmmaFence(Primitive):
    """wgmma.fence: registers and shared memory as they are now are what follows reads."""

    names = ("wgmma_fence",)
    archs = "sm_90a"
    warpgroup = True

    def signature(self, site: Site) -> Type | None:
        site.need_warpgroups()
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (Fence("wgmma"),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm("wgmma.fence.sync.aligned;")

    cases = (
        Good(
            "after zeros and after ordinary arithmetic",
            tile(
                "wgmma_fence()",
                "acc = wgmma(at, bt, acc)",
                "wgmma_commit()",
                "wgmma_wait(0)",
                "acc = acc * 2.0",
                "wgmma_fence()",
                "acc = wgmma(at, bt, acc)",
                "wgmma_commit()",
                "wgmma_wait(0)",
            ),
            dims=DIMS,
            expect=lambda i: {"c": 3 * np.float64(i["a"]) @ np.float64(i["b"]).T},
            rtol=1e-5,
        ),
        Good(
            "once for a chain of products",
            tile(
                "wgmma_fence()",
                "acc = wgmma(at[:, 0:+32], bt[:, 0:+32], acc)",
                "acc = wgmma(at[:, 32:+32], bt[:, 32:+32], acc)",
                "wgmma_commit()",
                "wgmma_wait(0)",
            ),
            dims=DIMS,
            expect=product,
            rtol=1e-5,
        ),
        Bad(
            "in a role of single warps",
            """
@kernel(arch="sm_90a")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warps=4):
        wgmma_fence()  #! type/scope
""",
            dims={"N": 32},
        ),
    )


class WgmmaCommit(Primitive):
    """wgmma.commit_group."""

    names = ("wgmma_commit",)
    archs = "sm_90a"
    warpgroup = True

    def signature(self, site: Site) -> Type | None:
        site.need_warpgroups()
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (Commit("wgmma"),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm("wgmma.commit_group.sync.aligned;")

    cases = (
        Good(
            "a group of two",
            tile(
                "wgmma_fence()",
                "acc = wgmma(at, bt, acc)",
                "acc = wgmma(at, bt, acc)",
                "wgmma_commit()",
                "wgmma_wait(0)",
            ),
            dims=DIMS,
            expect=lambda i: {"c": 2 * np.float64(i["a"]) @ np.float64(i["b"]).T},
            rtol=1e-5,
        ),
        Good(
            "two groups",
            tile(
                "wgmma_fence()",
                "acc = wgmma(at[:, 0:+16], bt[:, 0:+16], acc)",
                "wgmma_commit()",
                "acc = wgmma(at[:, 16:+48], bt[:, 16:+48], acc)",
                "wgmma_commit()",
                "wgmma_wait(0)",
            ),
            dims=DIMS,
            expect=product,
            rtol=1e-5,
        ),
        Bad(
            "by one thread",
            """
@kernel(arch="sm_90a")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warpgroups=1):
        with one_thread():
            wgmma_commit()  #! type/collective
""",
            dims={"N": 32},
        ),
    )


class WgmmaWait(Primitive):
    """wgmma.wait_group: afterwards accumulators may be read."""

    names = ("wgmma_wait",)
    archs = "sm_90a"
    warpgroup = True
    parameters = (parameter("pending", "int"),)

    def signature(self, site: Site) -> Type | None:
        site.need_warpgroups()
        if not 0 <= site.integer("pending") <= 7:
            raise site.refuse("pending", f"`pending` counts groups: 0 to 7, not {site.integer('pending')}")
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (WaitGroup("wgmma", op.args["pending"]),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm(f"wgmma.wait_group.sync.aligned {op.site.integer('pending')};")
        # The compiler sees no link between the wait and the accumulators: an empty instruction that claims to
        # change them keeps their uses behind it.
        for acc in out.remembered("wgmma"):
            halves = acc.ctype != "float"
            operands = ", ".join(f'"+{"r" if halves else "f"}"(d[{i}])' for i in range(acc.count))
            keep = out.helper(
                name := f"cake_keep_{acc.count}{'_halves' if halves else ''}",
                f"__device__ __forceinline__ void {name}({acc.ctype} (&d)[{acc.count}]) {{\n"
                f'    asm volatile("" : {operands} :: "memory");\n}}',
            )
            out.line(f"{keep}({acc.name});")

    cases = (
        Good(
            "for everything",
            tile("wgmma_fence()", "acc = wgmma(at, bt, acc)", "wgmma_commit()", "wgmma_wait(0)"),
            dims=DIMS,
            expect=product,
            rtol=1e-5,
        ),
        Good(
            "for all but the last group, then for it",
            tile(
                "wgmma_fence()",
                "for k in unroll(4):",
                "    acc = wgmma(at[:, k * 16:+16], bt[:, k * 16:+16], acc)",
                "    wgmma_commit()",
                "    wgmma_wait(1)",
                "wgmma_wait(0)",
            ),
            dims=DIMS,
            expect=product,
            rtol=1e-5,
        ),
        Bad(
            "more groups than are counted",
            """
@kernel(arch="sm_90a")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warpgroups=1):
        wgmma_wait(8)  #! type/operand
""",
            dims={"N": 32},
        ),
    )
