"""wgmma: asynchronous matrix multiply of a warpgroup (sm_90a)

Takes
    `acc = wgmma(a, b, acc)`: adds a @ b.T, or with `start=condition` takes it alone where the condition
    holds. `a` is a 64 x k window of shared memory, K-major, or with `a_major="MN"` a k x 64 one, or a
    fragment of bf16 or f16 [64, k] in layout "wgmma", which `cast` makes of an accumulator; `b` an n x k
    window of shared memory, K-major, or with `b_major="MN"` a k x n one; panels of one span may stand on an
    axis before; n a multiple of 8 up to 256. bf16 or f16 (k a multiple of 16), e4m3 and e5m2 (of 32), or f32
    with `kind="tf32"` (of 8), which leaves the lowest 13 bits of the factors out. Rows of a buffer are as
    long as its swizzle span; windows start at whole groups of 8 rows. `acc` is an f32 fragment [64, n] in
    layout "wgmma", of f16 and 8-bit products also f16. `wgmma_fence()`, `wgmma_commit()` and `wgmma_wait(n)`
    order it. All warps of a warpgroup execute them.
Touches
    Reads both windows through the async proxy: each warp its 16 rows of `a` and all of `b`. Writes the
    accumulator.
Completes when
    `wgmma_wait(n)` has left at most n committed groups in flight; until then neither the accumulator nor
    the operands may be touched. Ordinary writes to registers that wgmma reads or writes need `wgmma_fence()`
    before it.
Source
    PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": wgmma.mma_async, "Matrix-descriptor",
    wgmma.fence, wgmma.commit_group, wgmma.wait_group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.ir.layouts import Accumulator
from cake.ir.layouts.descriptors import (
    STEP,
    major_refusal,
)
from cake.ir.layouts.legality import CHUNK
from cake.ir.types import DType, FragmentType, RegionType, Type
from cake.kinds.primitive import (
    Bad,
    Good,
    Lowering,
    Memory,
    Op,
    Parameters,
    Primitive,
    Registers,
    Site,
    Use,
    Writer,
    parameter,
)
from cake.machine.effects import Async, Effect, Read, Region
from cake_plugins.primitives._wgmma import (
    WARP_ROWS,
    Form,
    descriptor,
    instruction,
    major_of,
    matrix,
    operand,
    placed,
    rows_of,
)

ROWS = 64
K_STEP = 16
FORMATS = (DType.bf16, DType.f16, DType.e4m3, DType.e5m2, DType.f32)
WORDS = {"f32": "tf32"}
HALF_SUMS = (DType.f16, DType.e4m3, DType.e5m2)
"""What f16 accumulators add up."""


class Wgmma(Primitive):
    """wgmma.mma_async.sync.aligned.m64nNkK, one instruction for each 32 bytes of k."""

    names = ("wgmma",)
    archs = "sm_90a"
    warpgroup = True
    parameters = (
        parameter("a", "shared", "fragment"),
        parameter("b", "shared"),
        parameter("acc", "fragment"),
        parameter("b_major", "text", default="K"),
        parameter("a_major", "text", default="K"),
        parameter("start", "bool", default=0),
        parameter("kind", "text", default=""),
    )
    in_place = "acc"
    uses = ("wgmma.m64k16.cycles_per_n8", "wgmma.latency", "shared.bytes")

    def signature(self, site: Site) -> Type | None:
        site.need_warpgroups()
        for name in ("a", "b"):
            if site.text(f"{name}_major") not in ("K", "MN"):
                raise site.refuse(f"{name}_major", f"`{name}` is stored K-major or MN-major")
        if site.has("a_major") and not isinstance(site.operand("a").type, RegionType):
            raise site.refuse("a_major", "`a` in registers is stored nowhere")
        b, acc = operand(site, "b"), site.fragment("acc")
        dtypes = [self._dtype(site, name) for name in ("a", "b")]
        if dtypes[0].bytes != dtypes[1].bytes or (dtypes[0].bytes == 2 and dtypes[0] is not dtypes[1]):
            raise site.refuse("b", f"`a` holds {dtypes[0].value}, `b` {dtypes[1].value}")
        if site.text("kind") != ("tf32" if dtypes[0] is DType.f32 else ""):
            help = 'wgmma(a, b, acc, kind="tf32")' if dtypes[0] is DType.f32 else ""
            raise site.refuse("a", "f32 is multiplied as tf32, and nothing else is", help=help)
        for name, dtype in zip(("a", "b"), dtypes, strict=True):
            why = major_refusal("wgmma", dtype, major_of(site, name))
            if why:
                raise site.refuse(f"{name}_major", why)
        rows, depth = self._left(site)
        if rows != ROWS:
            raise site.refuse("a", f"a warpgroup multiplies {ROWS} rows of `a`, this has {rows}")
        n = b.extent
        if n % 8 or n > 256:
            raise site.refuse("b", f"`b` has a multiple of 8 rows up to 256, this window has {n}")
        if depth != b.depth:
            raise site.refuse("b", f"`a` is 64 x {depth} and `b` {n} x {b.depth}: k must agree")
        held = DType.f16 if acc.dtype is DType.f16 and dtypes[0] in HALF_SUMS else DType.f32
        if acc != FragmentType(held, (ROWS, n), Accumulator(4)):
            message = f"the accumulator of this product is [{held.value}, 64, {n}] in layout wgmma"
            raise site.refuse("acc", message, help=f'acc = zeros({held.value}, 64, {n}, layout="wgmma")')
        return acc

    def _dtype(self, site: Site, name: str) -> DType:
        kind = site.operand(name).type
        assert isinstance(kind, RegionType | FragmentType)
        if kind.dtype not in FORMATS or (isinstance(kind, FragmentType) and kind.dtype.bytes != 2):
            choice = "bf16 or f16" if isinstance(kind, FragmentType) else "bf16, f16, e4m3, e5m2 or f32"
            raise site.refuse(name, f"`{name}` must be {choice}, here {kind.dtype.value}")
        return kind.dtype

    def _left(self, site: Site) -> tuple[int, int]:
        """Rows and k of `a`."""
        kind = site.operand("a").type
        if isinstance(kind, RegionType):
            found = operand(site, "a")
            return found.extent, found.depth
        assert isinstance(kind, FragmentType)
        if kind.layout != Accumulator(4) or kind.shape[1] % K_STEP:
            message = f"`a` in registers is 64 x k in layout wgmma, k a multiple of {K_STEP}"
            raise site.refuse("a", f"{message}; this is {list(kind.shape)} in {kind.layout.name}")
        return kind.shape[0], kind.shape[1]

    def effects(self, op: Op) -> Sequence[Effect]:
        b = op.region("b")
        reads, at = [Read(b.buffer, b.box)], [*placed(b, operand(op.site, "b"))]
        if isinstance(op.args["a"], Region):
            a = op.region("a")
            mine = a if op.args["a_major"] == "MN" else rows_of(a, op.warp)
            reads.insert(0, Read(mine.buffer, mine.box))
            at = [*placed(a, operand(op.site, "a")), *at]
        return (*at, Async(reads=tuple(reads), group="wgmma", fragment="acc", registers=("a",)))

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        if isinstance(op.args["a"], Region):
            left = self._rows(op, memory)
        else:
            left = op.args["a"].array.astype(np.float32)
        right = matrix(memory.read(op.region("b")), op.region("b").size)
        with np.errstate(all="ignore"):
            product: np.ndarray[Any, Any] = left @ (right if op.args["b_major"] == "MN" else right.T)
            held = op.args["acc"].array
            if op.args["start"]:
                return np.asarray(product, held.dtype)
            return np.asarray(held + product, held.dtype)

    def _rows(self, op: Op, memory: Memory) -> np.ndarray[Any, Any]:
        """The 16 rows of `a` in shared memory that belong to this warp."""
        a = op.region("a")
        if op.args["a_major"] == "MN":
            first = op.warp % 4 * WARP_ROWS
            return matrix(memory.read(a), a.size).T[first : first + WARP_ROWS]
        mine = rows_of(a, op.warp)
        return matrix(memory.read(mine), mine.size)

    def time(self, op: Op, parameters: Parameters) -> Use:
        b = operand(op.site, "b")
        steps = b.depth * b.element // STEP
        # Shares of one warp in the warpgroup's instruction, so that four warps together fill the SM's units.
        tensor = parameters("wgmma.m64k16.cycles_per_n8") * b.extent / 8 * steps / 4
        rows = b.extent + (ROWS if isinstance(op.args["a"], Region) else 0)
        shared = rows * STEP * steps / parameters("shared.bytes") / 4
        return Use(
            steps,
            {"tensor": tensor, "shared": shared},
            parameters("wgmma.latency"),
            asynchronous=True,
        )

    def lower(self, op: Lowering, out: Writer) -> None:
        acc: Registers = op.args["acc"]
        held = op.args["a"] if isinstance(op.args["a"], Registers) else None
        b = operand(op.site, "b")
        if held is None:
            a = operand(op.site, "a")
            left = descriptor(out, op.args["a"], a)
        start = descriptor(out, op.args["b"], b)
        words = [WORDS.get(word := self._dtype(op.site, name).value, word) for name in ("a", "b")]
        scaled = op.site.has("start")
        majors = ("K" if held is not None else a.major, b.major)
        shape = (b.element, acc.count, held is not None, majors)
        step_of = instruction(out, Form(b.extent, *words, acc.type.dtype.value, *shape, scaled))
        for step in range(b.depth * b.element // STEP):
            k = step * STEP // b.element
            # Inside a span the address advances as if there were no swizzle; descriptors count 16 bytes.
            right = f"{start} + {b.ahead(k) // CHUNK}"
            if held is None:
                first = f"{left} + {a.ahead(k) // CHUNK}"
            else:
                first = ", ".join(f"{held.name}[{4 * step + i}]" for i in range(4))
            keep = "" if not scaled else ", 1" if step else f", !({op.args['start']})"
            out.line(f"{step_of}({acc.name}, {first}, {right}{keep});")
        out.remember("wgmma", acc)

    cases = (
        Good(
            "one tile",
            """
@kernel(arch="sm_90a")
def tile(a: Global[bf16, M, K], b: Global[bf16, N, K], c: GlobalOut[f32, M, N]):
    grid(1)
    at = Shared[bf16, 64, 64](swizzle=128)
    bt = Shared[bf16, 24, 64](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("mma", warpgroups=1):
        with one_thread():
            expect_bytes(full, at, bt)
            tma_load(at, a[0:+64, 0:+64], full)
            tma_load(bt, b[0:+24, 0:+64], full)
        acc = zeros(f32, 64, 24, layout="wgmma")
        wait(full, 0)
        wgmma_fence()
        acc = wgmma(at, bt, acc)
        wgmma_commit()
        wgmma_wait(0)
        store(c[0:+64, 0:+24], acc, vector=2)
""",
            dims={"M": 64, "N": 24, "K": 64},
            expect=lambda i: {"c": np.float64(i["a"]) @ np.float64(i["b"]).T},
            rtol=1e-5,
        ),
        Good(
            "two warpgroups, f16, narrow spans, k in two windows",
            """
@kernel(arch="sm_90a")
def tile(a: Global[f16, M, K], b: Global[f16, N, K], c: GlobalOut[f32, M, N]):
    grid(1)
    at = Shared[f16, 128, 32](swizzle=64)
    bt = Shared[f16, 2, 64, 16](swizzle=32)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("mma", warpgroups=2):
        with one_thread():
            expect_bytes(full, at, bt)
            tma_load(at, a[0:+128, 0:+32], full)
            tma_load(bt[0], b[0:+64, 0:+16], full)
            tma_load(bt[1], b[0:+64, 16:+16], full)
        acc = zeros(f32, 64, 64, layout="wgmma")
        wait(full, 0)
        wgmma_fence()
        for j in range(2):
            acc = wgmma(at[warpgroup * 64:+64, j * 16:+16], bt[j], acc)
        wgmma_commit()
        wgmma_wait(0)
        store(c[warpgroup * 64:+64, 0:+64], acc, vector=2)
""",
            dims={"M": 128, "N": 64, "K": 32},
            expect=lambda i: {"c": np.float64(i["a"]) @ np.float64(i["b"]).T},
            rtol=1e-5,
        ),
        Good(
            "a product of a product, the second operand as it was loaded",
            """
@kernel(arch="sm_90a")
def chain(a: Global[bf16, M, K], v: Global[bf16, M, N], c: GlobalOut[f32, M, N]):
    grid(1)
    at = Shared[bf16, 64, 64](swizzle=128)
    vt = Shared[bf16, 2, 64, 64](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("mma", warpgroups=1):
        with one_thread():
            expect_bytes(full, at, vt)
            tma_load(at, a[0:+64, 0:+64], full)
            tma_load(vt[0], v[0:+64, 0:+64], full)
            tma_load(vt[1], v[0:+64, 64:+64], full)
        s = zeros(f32, 64, 64, layout="wgmma")
        wait(full, 0)
        wgmma_fence()
        s = wgmma(at, at, s)
        wgmma_commit()
        wgmma_wait(0)
        p = cast(s, bf16)
        acc = zeros(f32, 64, 128, layout="wgmma")
        wgmma_fence()
        acc = wgmma(p, vt, acc, b_major="MN")
        wgmma_commit()
        wgmma_wait(0)
        store(c[0:+64, 0:+128], acc, vector=2)
""",
            dims={"M": 64, "N": 128, "K": 64},
            expect=lambda i: {
                "c": (np.float32(i["a"]) @ np.float32(i["a"]).T).astype(DType.bf16.numpy).astype(np.float64)
                @ np.float64(i["v"])
            },
            rtol=1e-2,
        ),
        Good(
            "e4m3, both operands of 128 bytes a row",
            """
@kernel(arch="sm_90a")
def tile(a: Global[e4m3, M, K], b: Global[e4m3, N, K], c: GlobalOut[f32, M, N]):
    grid(1)
    at = Shared[e4m3, 64, 128](swizzle=128)
    bt = Shared[e4m3, 16, 128](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("mma", warpgroups=1):
        with one_thread():
            expect_bytes(full, at, bt)
            tma_load(at, a[0:+64, 0:+128], full)
            tma_load(bt, b[0:+16, 0:+128], full)
        acc = zeros(f32, 64, 16, layout="wgmma")
        wait(full, 0)
        wgmma_fence()
        acc = wgmma(at, bt, acc)
        wgmma_commit()
        wgmma_wait(0)
        store(c[0:+64, 0:+16], acc, vector=2)
""",
            dims={"M": 64, "N": 16, "K": 128},
            expect=lambda i: {"c": np.float64(i["a"]) @ np.float64(i["b"]).T},
            rtol=1e-3,
        ),
        Good(
            "tf32, the first product of each pass alone",
            """
@kernel(arch="sm_90a")
def tile(a: Global[f32, M, K], b: Global[f32, N, K], c: GlobalOut[f32, M, N]):
    require(K == 64)
    grid(1)
    at = Shared[f32, 2, 64, 32](swizzle=128)
    bt = Shared[f32, 2, 16, 32](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("mma", warpgroups=1):
        with one_thread():
            expect_bytes(full, at, bt)
            for p in range(2):
                tma_load(at[p], a[0:+64, p * 32:+32], full)
                tma_load(bt[p], b[0:+16, p * 32:+32], full)
        acc = zeros(f32, 64, 16, layout="wgmma") + 7.0
        wait(full, 0)
        wgmma_fence()
        for p in range(2):
            acc = wgmma(at[p], bt[p], acc, start=p == 0, kind="tf32")
        wgmma_commit()
        wgmma_wait(0)
        store(c[0:+64, 0:+16], acc, vector=2)
""",
            dims={"M": 64, "N": 16, "K": 64},
            expect=lambda i: {"c": np.float64(i["a"]) @ np.float64(i["b"]).T},
            rtol=4e-3,
        ),
        Good(
            "added up in f16",
            """
@kernel(arch="sm_90a")
def tile(a: Global[f16, M, K], b: Global[f16, N, K], c: GlobalOut[f16, M, N]):
    grid(1)
    at = Shared[f16, 64, 64](swizzle=128)
    bt = Shared[f16, 32, 64](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("mma", warpgroups=1):
        with one_thread():
            expect_bytes(full, at, bt)
            tma_load(at, a[0:+64, 0:+64], full)
            tma_load(bt, b[0:+32, 0:+64], full)
        acc = zeros(f16, 64, 32, layout="wgmma")
        wait(full, 0)
        wgmma_fence()
        acc = wgmma(at, bt, acc)
        wgmma_commit()
        wgmma_wait(0)
        store(c[0:+64, 0:+32], acc, vector=2)
""",
            dims={"M": 64, "N": 32, "K": 64},
            expect=lambda i: {"c": np.float64(i["a"]) @ np.float64(i["b"]).T},
            rtol=4e-3,
        ),
        Good(
            "both operands as they were loaded, k downwards",
            """
@kernel(arch="sm_90a")
def tile(a: Global[f16, K, M], b: Global[f16, K, N], c: GlobalOut[f32, M, N]):
    grid(1)
    at = Shared[f16, 2, 32, 32](swizzle=64)
    bt = Shared[f16, 32, 64](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("mma", warpgroups=1):
        with one_thread():
            expect_bytes(full, at, bt)
            tma_load(at[0], a[0:+32, 0:+32], full)
            tma_load(at[1], a[0:+32, 32:+32], full)
            tma_load(bt, b[0:+32, 0:+64], full)
        acc = zeros(f32, 64, 64, layout="wgmma")
        wait(full, 0)
        wgmma_fence()
        acc = wgmma(at, bt, acc, a_major="MN", b_major="MN")
        wgmma_commit()
        wgmma_wait(0)
        store(c[0:+64, 0:+64], acc, vector=2)
""",
            dims={"M": 64, "N": 64, "K": 32},
            expect=lambda i: {"c": np.float64(i["a"]).T @ np.float64(i["b"])},
            rtol=1e-5,
        ),
        Bad(
            "bf16 added up in f16",
            """
@kernel(arch="sm_90a")
def wrong(c: GlobalOut[f32, M, N]):
    grid(1)
    at = Shared[bf16, 64, 64](swizzle=128)
    with role("mma", warpgroups=1):
        acc = zeros(f16, 64, 64, layout="wgmma")
        acc = wgmma(at, at, acc)  #! type/operand
""",
            dims={"M": 64, "N": 64},
        ),
        Bad(
            "rows longer than the swizzle span",
            """
@kernel(arch="sm_90a")
def wrong(c: GlobalOut[f32, M, N]):
    grid(1)
    at = Shared[bf16, 64, 128](swizzle=128)
    bt = Shared[bf16, 64, 64](swizzle=128)
    with role("mma", warpgroups=1):
        acc = zeros(f32, 64, 64, layout="wgmma")
        acc = wgmma(at[:, 0:+64], bt, acc)  #! type/operand
""",
            dims={"M": 64, "N": 64},
        ),
        Bad(
            "an accumulator of another width",
            """
@kernel(arch="sm_90a")
def wrong(c: GlobalOut[f32, M, N]):
    grid(1)
    at = Shared[bf16, 64, 64](swizzle=128)
    bt = Shared[bf16, 64, 64](swizzle=128)
    with role("mma", warpgroups=1):
        acc = zeros(f32, 64, 32, layout="wgmma")
        acc = wgmma(at, bt, acc)  #! type/operand
""",
            dims={"M": 64, "N": 64},
        ),
        Bad(
            "a result without a home",
            """
@kernel(arch="sm_90a")
def wrong(c: GlobalOut[f32, M, N]):
    grid(1)
    at = Shared[bf16, 64, 64](swizzle=128)
    bt = Shared[bf16, 64, 64](swizzle=128)
    with role("mma", warpgroups=1):
        acc = zeros(f32, 64, 64, layout="wgmma")
        other = wgmma(at, bt, acc)  #! type/in-place
""",
            dims={"M": 64, "N": 64},
        ),
    )
