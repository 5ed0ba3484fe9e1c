"""tma_load: tile copies from global to shared memory by the copy engine (sm_90)

Takes
    `tma_load(s[slot], a[row:+m, k:+n], bar)`, issued by one thread. 1 to 5 axes; `multicast=mask` fills the
    window of every CTA of the cluster whose bit is set, and counts on its mbarrier. The shared window is made
    of whole rows of its buffer and has the buffer's swizzle. `hint` is "evict_first" or "evict_last". With
    `map=maps[g, :]` the tensor is what that map says (`tensormap_init`), not what the host said.
Touches
    Reads the tensor (zeros outside), writes the shared window, through the async proxy.
Completes when
    Its bytes (all of the window, zeros included) arrive on the mbarrier.
Source
    PTX ISA, "cp.async.bulk.tensor", "Tensor Map", "Swizzling Modes", "createpolicy".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

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
from cake.machine.effects import Aligned, Async, Effect, Read, Write
from cake_plugins.primitives._policy import check_hint, hint_parameter, policy
from cake_plugins.primitives._tensormap import check_map, read_through
from cake_plugins.primitives._tma import alignment, check_copy, coordinates, inside


def _destinations(op: Op) -> list[int]:
    """Ranks of the CTAs that a load fills; -1 for the executing one."""
    mask = op.args["multicast"]
    return [r for r in range(mask.bit_length()) if mask >> r & 1] if op.site.has("multicast") else [-1]


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
        hint_parameter(),
        parameter("map", "global", default=0),
    )
    uses = ("tma.latency", "tma.bytes")

    def signature(self, site: Site) -> Type | None:
        check_copy(site, "destination", "source")
        check_hint(site)
        if site.has("map"):
            check_map(site, "map")
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
        reads: tuple[Read, ...] = (Read(source.buffer, source.box),)
        if op.site.has("map"):
            held = op.region("map")
            every = tuple((0, extent) for extent in source.buffer.shape)
            reads = (Read(source.buffer, every, some=True), Read(held.buffer, held.box, tensormap=True))
        return (
            Aligned(destination.buffer, destination.start, alignment(destination.buffer.swizzle)),
            *(
                Async(
                    reads,
                    (Write(destination.buffer, destination.box, cta),),
                    barrier=replace(op.args["barrier"], cta=cta),
                    bytes=source.bytes,
                )
                for cta in _destinations(op)
            ),
        )

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        source = op.region("source")
        found: np.ndarray[Any, Any] | None
        if op.site.has("map"):
            swizzle = op.region("destination").buffer.swizzle
            found = read_through(memory, op.region("map"), source, swizzle)
        else:
            found = memory.read(source)
        data = np.full(source.size, np.nan) if found is None else found
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
        if op.site.has("map"):
            held: Window = op.args["map"]
            tensor = f"{held.buffer.name} + {out.global_index(held, ['0'] * len(held.size))}"
        else:
            tensor = f"&{out.tensor_map(source.buffer, source.size, destination.buffer.swizzle)}"
        at = ", ".join(f"%{i + 3}" for i in range(rank))
        inputs = [
            ("r", out.shared_address(destination, ["0"] * len(destination.size))),
            ("l", tensor),
            ("r", op.args["barrier"]),
            *coordinates(source, out),
        ]
        cast, mask = "", ""
        if op.site.has("multicast"):
            cast, mask = ".multicast::cluster", f", %{len(inputs)}"
            inputs.append(("h", f"static_cast<unsigned short>({op.args['multicast']})"))
        hint = policy(op.site, out)
        if hint:
            cast, mask = f"{cast}.L2::cache_hint", f"{mask}, %{len(inputs)}"
            inputs.append(("l", hint))
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
            tma_load(s[:, :], x[block, 0:+4, 0:+8], a, hint="evict_first")
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
            tma_load(s[rank], x[rank * 8:+8, 0:+64], a, multicast=3, hint="evict_last")
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
        Good(
            "five axes",
            """
@kernel(arch="sm_90a")
def copy(x: Global[f16, A, B, C, M, N], y: GlobalOut[f16, A, B, C, M, N]):
    require(N % 8 == 0)
    grid(A)
    s = Shared[f16, 2, 3, 4, 8]
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a, s)
            tma_load(s, x[block, 0:+2, 0:+3, 0:+4, 0:+8], a)
        wait(a, 0)
        with one_thread():
            tma_store(y[block, 0:+2, 0:+3, 0:+4, 0:+8], s, hint="evict_first")
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"A": 2, "B": 1, "C": 3, "M": 4, "N": 8},
            expect=lambda i: {"y": i["x"]},
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
