"""tensormap_init, tensormap_replace, tensormap_publish, fence_tensormap: maps that the kernel itself makes

Takes
    A tensor map is 128 bytes: a row of a buffer of u32 with 32 columns. `tensormap_init(t, a[0:+m, 0:+k], s)`
    by a warp writes into shared memory the map of `a` for boxes of the window's size and buffers like `s`.
    `tensormap_replace(t, a[i, 0], m, k)` by one thread points it to the part of `a` that begins there and has
    these extents, one an axis. `tensormap_publish(maps[g, :], t)` by a warp copies it to global memory.
    `fence_tensormap(maps[g, :])` precedes the first `tma_load(..., map=maps[g, :])` of the thread after that:
    its window counts from the part's beginning, and what lies outside the part is zeros.
Touches
    The rows of the maps, through the generic proxy; the copy engine reads them through the tensormap proxy.
Completes when
    Program order. A map that is published again must not be in use: the copies before are known to be
    complete.
Source
    PTX ISA, "tensormap.replace", "tensormap.cp_fenceproxy", "membar / fence: fence.proxy.tensormap".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.ir.types import Type
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
from cake.machine.effects import AcquireMap, Aligned, Effect, Inside, Read, Region, Write
from cake_plugins.primitives._tensormap import BYTES, check_map, encoded, replaced
from cake_plugins.primitives._tma import check_copy

ARCHS = "sm_90a|sm_100a|sm_120a"


class TensormapInit(Primitive):
    """Copies the map that the host made, a word a lane."""

    names = ("tensormap_init",)
    archs = ARCHS
    parameters = (parameter("map", "shared"), parameter("window", "global"), parameter("like", "shared"))

    def signature(self, site: Site) -> Type | None:
        check_map(site, "map")
        check_copy(site, "like", "window")
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        region = op.region("map")
        return (Aligned(region.buffer, region.start, BYTES), Write(region.buffer, region.box))

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        window = op.region("window")
        memory.write(op.region("map"), encoded(window.buffer, window.size, op.region("like").buffer.swizzle))
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(4)

    def lower(self, op: Lowering, out: Writer) -> None:
        window: Window = op.args["window"]
        tensor = out.tensor_map(window.buffer, window.size, op.args["like"].buffer.swizzle)
        map_: Window = op.args["map"]
        to = out.shared_address(map_, [*["0"] * (len(map_.size) - 1), out.lane])
        out.line("__syncwarp();")
        out.asm(
            "st.shared.b32 [%0], %1;",
            inputs=[("r", to), ("r", f"reinterpret_cast<const unsigned*>(&{tensor})[{out.lane}]")],
        )
        out.line("__syncwarp();")

    cases = (
        Good(
            "rows of a part, the tail of its last tile zeros",
            """
@kernel(arch="sm_90a")
def part(x: Global[bf16, M, N], y: GlobalOut[bf16, 2, R, N], maps: GlobalOut[u32, 2, 32]):
    require(N == 64, R == 16, M >= 11)
    grid(2)
    t = Shared[u32, 32]
    s = Shared[bf16, 16, 64](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        tensormap_init(t, x[0:+16, 0:+64], s)
        with one_thread():
            tensormap_replace(t, x[block * 5, 0], block + 5, N)
        tensormap_publish(maps[block, :], t)
        with one_thread():
            fence_tensormap(maps[block, :])
            expect_bytes(full, s)
            tma_load(s, x[0:+16, 0:+64], full, map=maps[block, :])
        wait(full, 0)
        with one_thread():
            tma_store(y[block, 0:+16, 0:+64], s)
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 20, "N": 64, "R": 16},
            expect=lambda i: {
                "y": np.stack([np.pad(i["x"][5 * b : 5 + 6 * b], ((0, 11 - b), (0, 0))) for b in range(2)])
            },
        ),
        Bad(
            "a map of half the bytes",
            """
@kernel(arch="sm_90a")
def part(x: Global[bf16, M, N]):
    grid(1)
    t = Shared[u32, 16]
    s = Shared[bf16, 16, 64](swizzle=128)
    with role("all", warps=1):
        tensormap_init(t, x[0:+16, 0:+64], s)  #! type/operand
""",
            dims={"M": 16, "N": 64},
        ),
    )


class TensormapReplace(Primitive):
    """tensormap.replace of the address and of each extent."""

    names = ("tensormap_replace",)
    archs = ARCHS
    single = True
    collective = False
    parameters = (
        parameter("map", "shared"),
        parameter("start", "global"),
        parameter("extents", "int", variadic=True),
    )

    def signature(self, site: Site) -> Type | None:
        check_map(site, "map")
        start = site.region("start")
        if any(size != 1 for size in start.window):
            raise site.refuse("start", "the part begins at an element, and its extents follow")
        if len(site.operands["extents"]) != len(start.window):
            raise site.refuse(
                None, f"the part of `{start.buffer.name}` has {len(start.window)} extents, one an axis"
            )
        return None

    def _part(self, op: Op) -> Region:
        return Region(op.region("start").buffer, op.region("start").start, tuple(op.args["extents"]))

    def effects(self, op: Op) -> Sequence[Effect]:
        region, part = op.region("map"), self._part(op)
        return (
            Inside(part),
            Aligned(part.buffer, part.start, 16),
            Read(region.buffer, region.box),
            Write(region.buffer, region.box),
        )

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        part, region = self._part(op), op.region("map")
        words = np.array(memory.read(region)).reshape(-1)
        memory.write(region, replaced(words, part.start, part.size))
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(4 + 2 * len(op.args["extents"]))

    def lower(self, op: Lowering, out: Writer) -> None:
        map_: Window = op.args["map"]
        start: Window = op.args["start"]
        at = out.shared_address(map_, ["0"] * len(map_.size))
        address = f"{start.buffer.name} + {out.global_index(start, ['0'] * len(start.size))}"
        out.asm(
            "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;",
            inputs=[("r", at), ("l", address)],
        )
        for axis, extent in enumerate(reversed(op.args["extents"])):
            out.asm(
                f"tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], {axis}, %1;",
                inputs=[("r", at), ("r", f"static_cast<unsigned>({extent})")],
            )

    cases = (
        Good(
            "a batch of three axes, no rows of its last part",
            """
@kernel(arch="sm_90a")
def part(x: Global[f32, B, M, N], y: GlobalOut[f32, B, 4, 8], maps: GlobalOut[u32, B, 32]):
    require(N == 8, M >= 4)
    grid(B)
    t = Shared[u32, 32]
    s = Shared[f32, 4, 8]
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        tensormap_init(t, x[0, 0:+4, 0:+8], s)
        with one_thread():
            tensormap_replace(t, x[block, 1, 0], 1, 3 - block, N)
        tensormap_publish(maps[block, :], t)
        with one_thread():
            fence_tensormap(maps[block, :])
            expect_bytes(full, s)
            tma_load(s, x[0, 0:+4, 0:+8], full, map=maps[block, :])
        wait(full, 0)
        with one_thread():
            tma_store(y[block, 0:+4, 0:+8], s)
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"B": 3, "M": 5, "N": 8},
            expect=lambda i: {
                "y": np.stack([np.pad(i["x"][b, 1 : 4 - b], ((0, 1 + b), (0, 0))) for b in range(3)])
            },
        ),
        Bad(
            "an extent short",
            """
@kernel(arch="sm_90a")
def part(x: Global[bf16, M, N]):
    grid(1)
    t = Shared[u32, 32]
    with role("all", warps=1):
        with one_thread():
            tensormap_replace(t, x[0, 0], 8)  #! type/operand
""",
            dims={"M": 16, "N": 64},
        ),
    )


class TensormapPublish(Primitive):
    """tensormap.cp_fenceproxy, which copies and releases to the tensormap proxy at once."""

    names = ("tensormap_publish",)
    archs = ARCHS
    parameters = (parameter("map", "global"), parameter("source", "shared"))
    uses = ("fence.latency",)

    def signature(self, site: Site) -> Type | None:
        check_map(site, "map")
        check_map(site, "source")
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        source, destination = op.region("source"), op.region("map")
        return (
            Aligned(source.buffer, source.start, BYTES),
            Inside(destination),
            Read(source.buffer, source.box),
            Write(destination.buffer, destination.box),
        )

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        memory.write(op.region("map"), memory.read(op.region("source")))
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(4, latency=parameters("fence.latency"), l2_write=BYTES)

    def lower(self, op: Lowering, out: Writer) -> None:
        source: Window = op.args["source"]
        held = out.shared_address(source, ["0"] * len(source.size))
        out.line("__syncwarp();")
        out.asm(
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
            f"[%0], [%1], {BYTES};",
            inputs=[("l", address(out, op.args["map"])), ("r", held)],
        )

    cases = (
        Good(
            "published again once the copies before are complete",
            """
@kernel(arch="sm_90a")
def parts(x: Global[bf16, M, N], y: GlobalOut[bf16, 3, 8, N], maps: GlobalOut[u32, 1, 32]):
    require(N == 64, M == 24)
    grid(1)
    t = Shared[u32, 32]
    s = Shared[bf16, 8, 64](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        tensormap_init(t, x[0:+8, 0:+64], s)
        for i in range(3):
            with one_thread():
                tensormap_replace(t, x[i * 8, 0], 6 + i, N)
            tensormap_publish(maps[0, :], t)
            with one_thread():
                fence_tensormap(maps[0, :])
                expect_bytes(full, s)
                tma_load(s, x[0:+8, 0:+64], full, map=maps[0, :])
            wait(full, i & 1)
            with one_thread():
                tma_store(y[i, 0:+8, 0:+64], s)
                bulk_commit()
                bulk_wait_read(0)
""",
            dims={"M": 24, "N": 64},
            expect=lambda i: {
                "y": np.stack([np.pad(i["x"][8 * k : 6 + 9 * k], ((0, 2 - k), (0, 0))) for k in range(3)])
            },
        ),
        Bad(
            "into an input",
            """
@kernel(arch="sm_90a")
def part(maps: Global[u32, G, 32]):
    grid(1)
    t = Shared[u32, 32]
    with role("all", warps=1):
        tensormap_publish(maps[0, :], t)  #! type/operand
""",
            dims={"G": 1},
        ),
    )


class FenceTensormap(Primitive):
    """fence.proxy.tensormap::generic.acquire, by the thread that issues the copies."""

    names = ("fence_tensormap",)
    archs = ">=sm_90"
    single = True
    collective = False
    parameters = (parameter("map", "global"),)
    uses = ("fence.latency",)

    def signature(self, site: Site) -> Type | None:
        check_map(site, "map")
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (AcquireMap(op.region("map")),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1, latency=parameters("fence.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm(
            f"fence.proxy.tensormap::generic.acquire.gpu [%0], {BYTES};",
            inputs=[("l", address(out, op.args["map"]))],
        )

    cases = (
        Good(
            "before the first copy with a map of its own",
            """
@kernel(arch="sm_90a")
def part(x: Global[f16, M, N], y: GlobalOut[f16, 8, N], maps: GlobalOut[u32, 1, 32]):
    require(N == 64, M >= 8)
    grid(1)
    t = Shared[u32, 32]
    s = Shared[f16, 8, 64](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        tensormap_init(t, x[0:+8, 0:+64], s)
        with one_thread():
            tensormap_replace(t, x[1, 0], 4, N)
        tensormap_publish(maps[0, :], t)
        with one_thread():
            fence_tensormap(maps[0, :])
            expect_bytes(full, s)
            tma_load(s, x[2:+8, 0:+64], full, map=maps[0, :])
        wait(full, 0)
        with one_thread():
            tma_store(y[0:+8, 0:+64], s)
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 9, "N": 64},
            expect=lambda i: {"y": np.pad(i["x"][3:5], ((0, 6), (0, 0)))},
        ),
        Bad(
            "of what is no map",
            """
@kernel(arch="sm_90a")
def part(y: GlobalOut[u32, M, N]):
    grid(1)
    with role("all", warps=1):
        with one_thread():
            fence_tensormap(y[0, :])  #! type/operand
""",
            dims={"M": 1, "N": 64},
        ),
    )


def address(out: Writer, window: Window) -> str:
    """C++ expression: the address of a map in global memory."""
    return f"{window.buffer.name} + {out.global_index(window, ['0'] * len(window.size))}"
