"""tma_store, tma_reduce: tile copies from shared to global memory by the copy engine (sm_90)

Takes
    `tma_store(c[row:+m, col:+n], s[slot])`, issued by one thread; 1 to 5 axes. `tma_reduce(c[...], s[slot],
    "add")` combines with what the tensor holds: "add", "min", "max" of 16-bit floats and integers, "add" of
    f32, "and", "or", "xor" of integers. The shared window is made of whole rows of its buffer and has the
    buffer's swizzle. `hint` is "evict_first" or "evict_last".
Touches
    Reads the shared window through the async proxy, writes what lies inside the tensor; a reduction changes
    each element atomically, in no order, and needs a value there.
Completes when
    The bulk group that the thread commits next.
Source
    PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "Tensor Map", "createpolicy".
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
from cake.machine.effects import Aligned, Async, Effect, Read, Write
from cake_plugins.primitives._policy import check_hint, hint_parameter, policy
from cake_plugins.primitives._reduction import check_reduction, reduced
from cake_plugins.primitives._tma import alignment, check_copy, coordinates, inside


class TmaStore(Primitive):
    """Shared to global, completing with a bulk group."""

    names = ("tma_store",)
    archs = ">=sm_90"
    single = True
    collective = False
    parameters = (parameter("destination", "global"), parameter("source", "shared"), hint_parameter())
    uses = ("tma.latency", "tma.bytes")

    def signature(self, site: Site) -> Type | None:
        check_copy(site, "source", "destination")
        if not site.region("destination").buffer.output:
            name = site.region("destination").buffer.name
            raise site.refuse("destination", f"`{name}` is an input (Global); outputs are GlobalOut")
        check_hint(site)
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
        _lower(op, out, "async", "")

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


class TmaReduce(Primitive):
    """cp.reduce.async.bulk.tensor."""

    names = ("tma_reduce",)
    archs = ">=sm_90"
    single = True
    collective = False
    parameters = (
        parameter("destination", "global"),
        parameter("source", "shared"),
        parameter("operation", "text"),
        hint_parameter(),
    )
    uses = ("tma.latency", "tma.bytes")

    def signature(self, site: Site) -> Type | None:
        check_copy(site, "source", "destination")
        if not site.region("destination").buffer.output:
            name = site.region("destination").buffer.name
            raise site.refuse("destination", f"`{name}` is an input (Global); outputs are GlobalOut")
        check_reduction(site, site.region("destination").dtype)
        check_hint(site)
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        source, destination = op.region("source"), op.region("destination")
        return (
            Aligned(source.buffer, source.start, alignment(source.buffer.swizzle)),
            Async(
                (Read(source.buffer, source.box),),
                (Write(destination.buffer, destination.box, reduces=True),),
                group="bulk",
            ),
        )

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        destination = op.region("destination")
        held, given = memory.read(destination), memory.read(op.region("source"))
        given = np.asarray(given).reshape(destination.size)
        memory.write(destination, reduced(op.args["operation"], held, given))
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        moved = op.region("source").bytes
        units = {"copy": moved / parameters("tma.bytes")}
        asked = inside(op.region("destination"))
        latency = parameters("tma.latency")
        return Use(4, units, latency, l2_read=asked, l2_write=asked, asynchronous=True)

    def lower(self, op: Lowering, out: Writer) -> None:
        _lower(op, out, "reduce.async", f".{op.site.text('operation')}")

    cases = (
        Good(
            "two warps add to what one of them stored",
            """
@kernel(arch="sm_90a")
def total(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    require(N % 4 == 0)
    grid(1)
    s = Shared[f32, 16, 32](swizzle=128)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=2):
        with one_thread():
            expect_bytes(a, s)
            tma_load(s, x[0:+16, 0:+32], a)
        wait(a, 0)
        with one_thread():
            tma_store(y[0:+16, 0:+32], s)
            bulk_commit()
            bulk_wait(0)
        cta_sync()
        with one_thread("warp"):
            tma_reduce(y[0:+16, 0:+32], s, "add", hint="evict_last")
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 11, "N": 24},
            expect=lambda i: {"y": 3 * i["x"]},
            rtol=1e-6,
        ),
        Good(
            "the greatest of 16-bit floats",
            """
@kernel(arch="sm_90a")
def greatest(x: Global[bf16, 2, N], y: GlobalOut[bf16, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 2, 64]
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a, s)
            tma_load(s, x[0:+2, 0:+64], a)
        wait(a, 0)
        with one_thread():
            tma_store(y[0:+64], s[0])
            bulk_commit()
            bulk_wait(0)
            tma_reduce(y[0:+64], s[1], "max")
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"N": 64},
            expect=lambda i: {"y": i["x"].max(axis=0)},
        ),
        Good(
            "bits of integers",
            """
@kernel(arch="sm_100a")
def odd(x: Global[i32, 2, N], y: GlobalOut[i32, N]):
    require(N % 4 == 0)
    grid(1)
    s = Shared[i32, 2, 32]
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a, s)
            tma_load(s, x[0:+2, 0:+32], a)
        wait(a, 0)
        with one_thread():
            tma_store(y[0:+32], s[0])
            bulk_commit()
            bulk_wait(0)
            tma_reduce(y[0:+32], s[1], "xor")
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"N": 32},
            expect=lambda i: {"y": i["x"][0] ^ i["x"][1]},
        ),
        Bad(
            "the least of f32, which the copy engine cannot find",
            """
@kernel(arch="sm_90a")
def least(y: GlobalOut[f32, M, N]):
    grid(1)
    s = Shared[f32, 8, 32](swizzle=128)
    with role("all", warps=1):
        with one_thread():
            tma_reduce(y[0:+8, 0:+32], s[:, :], "min")  #! type/operand
""",
            dims={"M": 8, "N": 32},
        ),
    )


def _lower(op: Lowering, out: Writer, what: str, operation: str) -> None:
    source: Window = op.args["source"]
    destination: Window = op.args["destination"]
    rank = len(destination.size)
    tensor = out.tensor_map(destination.buffer, destination.size, source.buffer.swizzle)
    at = ", ".join(f"%{i + 2}" for i in range(rank))
    inputs = [
        ("l", f"&{tensor}"),
        ("r", out.shared_address(source, ["0"] * len(source.size))),
        *coordinates(destination, out),
    ]
    hint = policy(op.site, out)
    hinted, last = (".L2::cache_hint", f", %{len(inputs)}") if hint else ("", "")
    if hint:
        inputs.append(("l", hint))
    out.asm(
        f"cp.{what}.bulk.tensor.{rank}d.global.shared::cta{operation}.tile.bulk_group{hinted} "
        f"[%0, {{{at}}}], [%1]{last};",
        inputs=inputs,
    )
