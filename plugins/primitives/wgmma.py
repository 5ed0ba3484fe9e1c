"""wgmma: asynchronous matrix multiply of a warpgroup, both operands from shared memory (sm_90a)

Takes
    `acc = wgmma(a, b, acc)`: adds a @ b.T. `a` is a 64 x k window and `b` an n x k window of shared
    memory, K-major, bf16 or f16; n a multiple of 8 up to 256, k a multiple of 16. Rows of either buffer
    are as long as its swizzle span (32, 64 or 128 bytes); windows start at whole groups of 8 rows. `acc`
    is an f32 fragment [64, n] in layout "wgmma". `wgmma_fence()`, `wgmma_commit()` and `wgmma_wait(n)`
    order it. All warps of a warpgroup execute them.
Touches
    Reads both windows through the async proxy: each warp its 16 rows of `a` and all of `b`. Writes the
    accumulator.
Completes when
    `wgmma_wait(n)` has left at most n committed groups in flight; until then neither the accumulator nor
    the shared windows may be touched. Ordinary writes to an accumulator need `wgmma_fence()` before the
    next wgmma.
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
    WGMMA_SWIZZLE,
    Descriptor,
    Illegal,
    encoded,
    matrix_descriptor,
)
from cake.ir.layouts.legality import CHUNK
from cake.ir.types import DType, FragmentType, Type
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
    Window,
    Writer,
    parameter,
)
from cake.machine.effects import Aligned, Async, Effect, Read, Region

ROWS = 64
WARP_ROWS = 16
K_STEP = 16


class Wgmma(Primitive):
    """wgmma.mma_async.sync.aligned.m64nNk16, one instruction for each 16 of k."""

    names = ("wgmma",)
    archs = "sm_90a"
    warpgroup = True
    parameters = (parameter("a", "shared"), parameter("b", "shared"), parameter("acc", "fragment"))
    in_place = "acc"
    uses = ("wgmma.m64k16.cycles_per_n8", "wgmma.latency", "shared.bytes")

    def signature(self, site: Site) -> Type | None:
        site.need_warpgroups()
        for name in ("a", "b"):
            self._check_operand(site, name)
        a, b, acc = site.region("a"), site.region("b"), site.fragment("acc")
        if a.shape[0] != ROWS:
            raise site.refuse("a", f"a warpgroup multiplies {ROWS} rows of `a`, this window has {a.shape[0]}")
        n = b.shape[0]
        if n % 8 or n > 256:
            raise site.refuse("b", f"`b` has a multiple of 8 rows up to 256, this window has {n}")
        if a.shape[1] != b.shape[1]:
            raise site.refuse("b", f"`a` is 64 x {a.shape[1]} and `b` {n} x {b.shape[1]}: k must agree")
        if a.dtype is not b.dtype:
            raise site.refuse("b", f"`a` holds {a.dtype.value}, `b` {b.dtype.value}")
        if acc != FragmentType(DType.f32, (ROWS, n), Accumulator(4)):
            message = f"the accumulator of this product is [f32, 64, {n}] in layout wgmma"
            raise site.refuse("acc", message, help=f'acc = zeros(f32, 64, {n}, layout="wgmma")')
        return acc

    def _check_operand(self, site: Site, name: str) -> None:
        window = site.region(name)
        if window.dtype not in (DType.bf16, DType.f16):
            raise site.refuse(name, f"`{name}` must be bf16 or f16, here {window.dtype.value}")
        if len(window.shape) != 2 or window.window[-2:] != window.shape:
            message = f"`{name}` is a window of rows x k, the last two axes of its buffer"
            raise site.refuse(name, message, help="index the axes before them")
        found = matrix_descriptor(window, "K")
        if isinstance(found, Illegal):
            raise site.refuse(name, found.reason, help=found.help)

    def effects(self, op: Op) -> Sequence[Effect]:
        a, b = op.region("a"), op.region("b")
        mine = rows_of(a, op.warp)
        reads = (Read(mine.buffer, mine.box), Read(b.buffer, b.box))
        at = (*placed(a, operand(op.site, "a")), *placed(b, operand(op.site, "b")))
        return (*at, Async(reads=reads, group="wgmma", fragment="acc"))

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        a, b = rows_of(op.region("a"), op.warp), op.region("b")
        left = memory.read(a).astype(np.float32).reshape(a.size[-2:])
        right = memory.read(b).astype(np.float32).reshape(b.size[-2:])
        with np.errstate(all="ignore"):
            product: np.ndarray[Any, Any] = op.args["acc"].array + left @ right.T
        return product

    def time(self, op: Op, parameters: Parameters) -> Use:
        n, k = op.site.region("b").shape
        steps = k // K_STEP
        # Shares of one warp in the warpgroup's instruction, so that four warps together fill the SM's units.
        tensor = parameters("wgmma.m64k16.cycles_per_n8") * n / 8 * steps / 4
        shared = (ROWS + n) * k * 2 / parameters("shared.bytes") / 4
        return Use(
            steps,
            {"tensor": tensor, "shared": shared},
            parameters("wgmma.latency"),
            asynchronous=True,
        )

    def lower(self, op: Lowering, out: Writer) -> None:
        acc: Registers = op.args["acc"]
        a, b = (descriptor(out, op.args[name], operand(op.site, name)) for name in ("a", "b"))
        kind, steps = op.site.region("a"), operand(op.site, "a")
        n = acc.type.shape[1]
        dtype = kind.dtype.value
        registers = ", ".join(f"%{i}" for i in range(acc.count))
        operands = ", ".join(f'"+f"(d[{i}])' for i in range(acc.count))
        name = f"cake_wgmma_m64n{n}k16_{dtype}"
        step_of = out.helper(
            name,
            "__device__ __forceinline__ void\n"
            f"{name}(float (&d)[{acc.count}], unsigned long long a, unsigned long long b) {{\n"
            f'    asm volatile("wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{dtype}.{dtype} "\n'
            f'        "{{{registers}}}, "\n'
            f'        "%{acc.count}, %{acc.count + 1}, 1, 1, 1, 0, 0;"\n'
            f"        : {operands}\n"
            '        : "l"(a), "l"(b) : "memory");\n}',
        )
        for step in range(kind.shape[1] // K_STEP):
            # Inside a span the address advances as if there were no swizzle; descriptors count 16 bytes.
            ahead = steps.ahead(step * K_STEP) // CHUNK
            out.line(f"{step_of}({acc.name}, {a} + {ahead}, {b} + {ahead});")
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


def rows_of(a: Region, warp: int) -> Region:
    """The 16 rows of `a` that belong to a warp of the warpgroup."""
    lead = (0,) * (len(a.size) - 2)
    return a.sub((*lead, warp % 4 * WARP_ROWS, 0), (*a.size[:-2], WARP_ROWS, a.size[-1]))


def operand(site: Site, name: str) -> Descriptor:
    """How the tensor cores address an operand that `signature` has found legal."""
    found = matrix_descriptor(site.region(name), "K")
    assert isinstance(found, Descriptor)
    return found


def placed(window: Region, matrix: Descriptor) -> tuple[Aligned, Aligned]:
    """Whole groups of 8 rows, so that the swizzle pattern starts with them, and whole steps of k in them."""
    *rows, k = window.start
    buffer = window.buffer
    return (
        Aligned(buffer, (*rows, 0), matrix.row_alignment),
        Aligned(buffer, (*(0 for _ in rows), k), matrix.column_alignment),
    )


def descriptor(out: Writer, window: Window, matrix: Descriptor) -> str:
    """C++ name of the matrix descriptor of `window`."""
    span = matrix.swizzle
    name = f"cake_descriptor_{span}"
    text = (
        f"__device__ __forceinline__ unsigned long long {name}(unsigned address) {{\n"
        f"    return (address & 0x3ffffu) >> 4 | {encoded(matrix.leading)}ull << 16"
        f" | {encoded(matrix.stride)}ull << 32 | {WGMMA_SWIZZLE[span]}ull << 62;\n}}"
    )
    address = out.shared_address(window, ["0"] * len(window.size))
    variable = out.unique("cake_descriptor")
    out.line(f"const unsigned long long {variable} = {out.helper(name, text)}({address});")
    return variable
