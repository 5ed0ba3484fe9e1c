"""tma: tile copies between global and shared memory by the copy engine (sm_90)

Takes
    `tma_load(s[slot], a[row:+m, k:+n], bar)`, `tma_store(c[row:+m, col:+n], s[slot])`, issued by one
    thread. 1 to 5 axes; `tma_load(..., multicast=mask)` fills the window of every CTA of the cluster whose
    bit is set, and counts on its mbarrier. The shared window is made of whole rows of its buffer and has
    the buffer's swizzle.
Touches
    Load: reads the tensor (zeros outside), writes the shared window, through the async proxy. Store:
    reads the shared window through the async proxy, writes what lies inside the tensor.
Completes when
    Load: its bytes (all of the window, zeros included) arrive on the mbarrier. Store: the bulk group that
    the thread commits next.
Source
    PTX ISA, "cp.async.bulk.tensor", "Tensor Map", "Swizzling Modes".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from cake.ir.layouts.legality import box, bulk_piece, stride
from cake.ir.types import BarrierType, Type
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
from cake.machine.effects import Aligned, Async, Effect, Read, Region, Write


def check_copy(site: Site, shared_name: str, global_name: str) -> None:
    """Refuse what a tensor map cannot say; each reason names the figure and the limit."""
    inner, outer = site.region(shared_name), site.region(global_name)
    if inner.dtype is not outer.dtype:
        raise site.refuse(shared_name, f"copies between {outer.dtype.value} and {inner.dtype.value}")
    if inner.shape != outer.shape:
        raise site.refuse(shared_name, f"the windows differ: {list(outer.shape)} and {list(inner.shape)}")
    for name, illegal in ((shared_name, bulk_piece(inner)), (global_name, box(outer))):
        if illegal is not None:
            raise site.refuse(name, illegal.reason, help=illegal.help)
    apart = stride(outer)
    if apart is not None:
        raise site.refuse(global_name, apart.reason, code="type/tma-stride", help=apart.help)


def alignment(swizzle: int) -> int:
    """Bytes at which the shared window must start: a whole swizzle pattern."""
    return 8 * swizzle if swizzle else 128


def inside(region: Region) -> int:
    """Bytes of the window that lie inside the tensor: what memory is asked for."""
    return prod(extent for _, extent in region.box) * region.buffer.dtype.bytes


def _destinations(op: Op) -> list[int]:
    """Ranks of the CTAs that a load fills; -1 for the executing one."""
    mask = op.args["multicast"]
    return [r for r in range(mask.bit_length()) if mask >> r & 1] if op.site.has("multicast") else [-1]


def _coordinates(window: Window) -> list[tuple[str, str]]:
    return [("r", f"static_cast<int>({c})") for c in reversed(window.origin)]


class TmaLoad(Primitive):
    """Global to shared, completing on an mbarrier."""

    names = ("tma_load",)
    archs = ">=sm_90"
    single = True
    collective = False
    parameters = (
        parameter("destination", "shared"),
        parameter("source", "global"),
        parameter("barrier", "barrier"),
        parameter("multicast", "int", default=0),
    )
    uses = ("tma.latency", "tma.bytes")

    def signature(self, site: Site) -> Type | None:
        check_copy(site, "destination", "source")
        kind = site.operand("barrier").type
        assert isinstance(kind, BarrierType)
        if not kind.indexed:
            raise site.refuse("barrier", f"`{kind.name}` is an array", help=f"{kind.name}[i]")
        mask = site.operand("multicast").constant
        if site.has("multicast") and isinstance(mask, int) and not 0 < mask < 1 << site.cluster:
            message = f"the mask {mask:#b} must choose CTAs among the {site.cluster} of the cluster"
            raise site.refuse("multicast", message, help="bit r stands for the CTA of rank r")
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        source, destination = op.region("source"), op.region("destination")
        return (
            Aligned(destination.buffer, destination.start, alignment(destination.buffer.swizzle)),
            *(
                Async(
                    (Read(source.buffer, source.box),),
                    (Write(destination.buffer, destination.box, cta),),
                    barrier=replace(op.args["barrier"], cta=cta),
                    bytes=source.bytes,
                )
                for cta in _destinations(op)
            ),
        )

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        data = memory.read(op.region("source"))
        for cta in _destinations(op):
            memory.write(replace(op.region("destination"), cta=cta), data)
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        moved = op.region("source").bytes
        units = {"copy": moved / parameters("tma.bytes")}
        asked = inside(op.region("source"))
        return Use(4, units, parameters("tma.latency"), l2_read=asked, asynchronous=True)

    def lower(self, op: Lowering, out: Writer) -> None:
        source: Window = op.args["source"]
        destination: Window = op.args["destination"]
        rank = len(source.size)
        tensor = out.tensor_map(source.buffer, source.size, destination.buffer.swizzle)
        at = ", ".join(f"%{i + 3}" for i in range(rank))
        inputs = [
            ("r", out.shared_address(destination, ["0"] * len(destination.size))),
            ("l", f"&{tensor}"),
            ("r", op.args["barrier"]),
            *_coordinates(source),
        ]
        cast, mask = "", ""
        if op.site.has("multicast"):
            cast, mask = ".multicast::cluster", f", %{len(inputs)}"
            inputs.append(("h", f"static_cast<unsigned short>({op.args['multicast']})"))
        out.asm(
            f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{cast} "
            f"[%0], [%1, {{{at}}}], [%2]{mask};",
            inputs=inputs,
        )

    cases = (
        Good(
            "a tile that sticks out: zeros outside",
            """
@kernel(arch="sm_90a")
def copy(x: Global[bf16, M, N], y: GlobalOut[bf16, K, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 16, 64](swizzle=128)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a, s[:, :])
            tma_load(s[:, :], x[0:+16, 0:+64], a)
        wait(a, 0)
        with one_thread():
            tma_store(y[0:+16, 0:+64], s[:, :])
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 5, "N": 24, "K": 16},
            expect=lambda i: {"y": np.concatenate([i["x"].astype(np.float32), np.zeros((11, 24))])},
        ),
        Good(
            "three axes without swizzle",
            """
@kernel(arch="sm_100a")
def copy(x: Global[f32, B, M, N], y: GlobalOut[f32, B, M, N]):
    require(N % 4 == 0)
    grid(B)
    s = Shared[f32, 4, 8]
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a, s[:, :])
            tma_load(s[:, :], x[block, 0:+4, 0:+8], a)
        wait(a, 0)
        with one_thread():
            tma_store(y[block, 0:+4, 0:+8], s[:, :])
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"B": 2, "M": 3, "N": 8},
            expect=lambda i: {"y": i["x"]},
        ),
        Good(
            "each CTA of a cluster loads a half for both",
            """
@kernel(arch="sm_90a")
def share(x: Global[bf16, M, N], y: GlobalOut[bf16, 2, M, N]):
    require(N % 8 == 0)
    grid(2)
    cluster(2)
    s = Shared[bf16, 2, 8, 64](swizzle=128)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cluster_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a, s)
            tma_load(s[rank], x[rank * 8:+8, 0:+64], a, multicast=3)
        wait(a, 0)
        with one_thread():
            tma_store(y[rank, 0:+8, 0:+64], s[0])
            tma_store(y[rank, 8:+8, 0:+64], s[1])
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 13, "N": 40},
            expect=lambda i: {"y": np.stack([i["x"]] * 2)},
        ),
        Bad(
            "multicast to a CTA that the cluster has not",
            """
@kernel(arch="sm_90a")
def share(x: Global[bf16, M, N]):
    grid(2)
    cluster(2)
    s = Shared[bf16, 8, 64](swizzle=128)
    a = MBarrier(arrivals=1)
    with role("all", warps=1):
        with one_thread():
            tma_load(s[:, :], x[0:+8, 0:+64], a, multicast=4)  #! type/operand
""",
            dims={"M": 8, "N": 64},
        ),
        Bad(
            "a stride off 16 bytes",
            """
@kernel(arch="sm_90a")
def copy(x: Global[bf16, M, N]):
    grid(1)
    s = Shared[bf16, 8, 64](swizzle=128)
    a = MBarrier(arrivals=1)
    with role("all", warps=1):
        with one_thread():
            tma_load(s[:, :], x[0:+8, 0:+64], a)  #! type/tma-stride
""",
            dims={"M": 8, "N": 100},
        ),
        Bad(
            "a box wider than the swizzle",
            """
@kernel(arch="sm_90a")
def copy(x: Global[bf16, M, N]):
    grid(1)
    s = Shared[bf16, 8, 128](swizzle=128)
    a = MBarrier(arrivals=1)
    with role("all", warps=1):
        with one_thread():
            tma_load(s[:, :], x[0:+8, 0:+128], a)  #! type/operand
""",
            dims={"M": 8, "N": 128},
        ),
    )


class TmaStore(Primitive):
    """Shared to global, completing with a bulk group."""

    names = ("tma_store",)
    archs = ">=sm_90"
    single = True
    collective = False
    parameters = (parameter("destination", "global"), parameter("source", "shared"))
    uses = ("tma.latency", "tma.bytes")

    def signature(self, site: Site) -> Type | None:
        check_copy(site, "source", "destination")
        if not site.region("destination").buffer.output:
            name = site.region("destination").buffer.name
            raise site.refuse("destination", f"`{name}` is an input (Global); outputs are GlobalOut")
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        source, destination = op.region("source"), op.region("destination")
        return (
            Aligned(source.buffer, source.start, alignment(source.buffer.swizzle)),
            Async(
                (Read(source.buffer, source.box),),
                (Write(destination.buffer, destination.box),),
                group="bulk",
            ),
        )

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        memory.write(op.region("destination"), memory.read(op.region("source")))
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        moved = op.region("source").bytes
        units = {"copy": moved / parameters("tma.bytes")}
        asked = inside(op.region("destination"))
        return Use(4, units, parameters("tma.latency"), l2_write=asked, asynchronous=True)

    def lower(self, op: Lowering, out: Writer) -> None:
        source: Window = op.args["source"]
        destination: Window = op.args["destination"]
        rank = len(destination.size)
        tensor = out.tensor_map(destination.buffer, destination.size, source.buffer.swizzle)
        at = ", ".join(f"%{i + 2}" for i in range(rank))
        out.asm(
            f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%0, {{{at}}}], [%1];",
            inputs=[
                ("l", f"&{tensor}"),
                ("r", out.shared_address(source, ["0"] * len(source.size))),
                *_coordinates(destination),
            ],
        )

    cases = (
        Good(
            "written by threads, stored by the copy engine",
            """
@kernel(arch="sm_90a")
def fill(y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("all", warpgroups=1):
        stmatrix(s[:, :], cast(zeros(f32, 64, 64, layout="wgmma") + 3.0, bf16))
        fence_async()
        named_sync(1, warps=4)
        with one_thread():
            tma_store(y[0:+64, 0:+64], s[:, :])
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 50, "N": 40},
            expect=lambda i: {"y": np.full((50, 40), 3.0)},
        ),
        Good(
            "one row panel of a buffer",
            """
@kernel(arch="sm_120a")
def copy(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 32, 64](swizzle=128)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a, s[8:+16, :])
            tma_load(s[8:+16, :], x[0:+16, 0:+64], a)
        wait(a, 0)
        with one_thread():
            tma_store(y[0:+16, 0:+64], s[8:+16, :])
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 16, "N": 64},
            expect=lambda i: {"y": i["x"]},
        ),
        Bad(
            "into an input",
            """
@kernel(arch="sm_90a")
def wrong(x: Global[bf16, M, N]):
    grid(1)
    s = Shared[bf16, 8, 64](swizzle=128)
    with role("all", warps=1):
        with one_thread():
            tma_store(x[0:+8, 0:+64], s[:, :])  #! type/operand
""",
            dims={"M": 8, "N": 64},
        ),
    )
