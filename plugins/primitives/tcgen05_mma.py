"""tcgen05.mma: matrix products of the fifth-generation tensor cores, into tensor memory (sm_100a)

Takes
    `tcgen05_mma(d, a, b, accumulate=j > 0)`, issued by one thread: d = a @ b.T, added to what d holds where
    `accumulate` is true. `d` is 128 lanes x n columns of f32 in tensor memory, n a multiple of 16 up to 256;
    `a` 128 x k and `b` n x k in shared memory, K-major, in layouts that a descriptor can name; bf16 or f16 (k
    a multiple of 16), or e4m3 and e5m2 (of 32). `tcgen05_commit(bar)`: one arrival on an mbarrier once
    all that this thread has issued is complete.
Touches
    Reads `a` and `b` through the async proxy, reads and writes `d`. Operations that one thread issues keep
    their order.
Completes when
    The phase completes that `tcgen05_commit` arrives for. Until then the operands may not be overwritten nor
    `d` be touched by others; to load `d` they need `tcgen05_fence_after()` behind their wait.
Source
    PTX ISA, "tcgen05.mma", "Instruction descriptor", "Shared memory descriptor", "tcgen05.commit".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.ir.layouts.descriptors import STEP, Descriptor, Illegal, matrix_descriptor
from cake.ir.types import BarrierType, DType, Type
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
from cake.machine.effects import Aligned, Async, CommitTo, Effect, Read, Write

ROWS = 128
FORMATS = {
    DType.f16: ("f16", 0),
    DType.bf16: ("f16", 1),
    DType.e4m3: ("f8f6f4", 0),
    DType.e5m2: ("f8f6f4", 1),
}
"""Kind of instruction, and the code of the format in its descriptor."""

TILE = """
@kernel(arch="sm_100a")
def tile(a: Global[bf16, M, K], b: Global[bf16, N, K], c: GlobalOut[f32, M, N]):
    require(K % 64 == 0)
    grid(1)
    at = Shared[bf16, 2, 128, 64](swizzle=128)
    bt = Shared[bf16, 2, 32, 64](swizzle=128)
    t = TensorMemory[f32, 128, 32](column=0)
    full = MBarrier[2](arrivals=1)
    done = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(done)
        fence_mbarrier_init()
    if warp == 0:
        tcgen05_alloc(32)
        tcgen05_relinquish()
    cta_sync()
    with role("store", warpgroups=1):
        wait(done, 0)
        tcgen05_fence_after()
        v = tcgen05_ld(t)
        tcgen05_wait_ld()
        store(c[0:+128, 0:+32], v, vector=4)
    with role("mma", warps=1):
        with one_thread():
            for j in range(2):
                expect_bytes(full[j], at[j], bt[j])
                tma_load(at[j], a[0:+128, j * 64:+64], full[j])
                tma_load(bt[j], b[0:+32, j * 64:+64], full[j])
            for j in range(2):
                wait(full[j], 0)
                tcgen05_mma(t, at[j], bt[j], accumulate=j > 0)
            tcgen05_commit(done)
    cta_sync()
    if warp == 0:
        tcgen05_dealloc(32)
"""


def _product(inputs: Any) -> dict[str, Any]:
    return {"c": np.float64(inputs["a"]) @ np.float64(inputs["b"]).T}


GOOD = Good("two steps of k", TILE, dims={"M": 128, "N": 32, "K": 128}, expect=_product, rtol=1e-5)


def operand(site: Site, name: str) -> Descriptor:
    """The descriptor of a matrix operand; refuses a window that has none."""
    found = matrix_descriptor(site.region(name), "K")
    if isinstance(found, Illegal):
        raise site.refuse(name, found.reason, help=found.help)
    return found


def placed(op: Op, name: str) -> Effect:
    """Windows start at whole swizzle patterns: the descriptor's base offset is 0."""
    region = op.region(name)
    descriptor = matrix_descriptor(op.site.region(name), "K")
    assert isinstance(descriptor, Descriptor)
    return Aligned(region.buffer, (*region.start[:-1], 0), descriptor.row_alignment)


class Tcgen05Mma(Primitive):
    """tcgen05.mma.cta_group::1, one instruction for each 32 bytes of k."""

    names = ("tcgen05_mma",)
    archs = "sm_100a"
    single = True
    collective = False
    parameters = (
        parameter("d", "tensor"),
        parameter("a", "shared"),
        parameter("b", "shared"),
        parameter("accumulate", "bool"),
    )
    uses = ("tcgen05.m128k16.cycles_per_n8", "tcgen05.latency")

    def signature(self, site: Site) -> Type | None:
        d, a, b = site.region("d"), site.region("a"), site.region("b")
        for name in ("a", "b"):
            dtype = site.region(name).dtype
            if dtype not in FORMATS:
                raise site.refuse(name, f"`{name}` must be bf16, f16, e4m3 or e5m2, here {dtype.value}")
        if FORMATS[a.dtype][0] != FORMATS[b.dtype][0] or (a.dtype.bytes == 2 and a.dtype is not b.dtype):
            raise site.refuse("b", f"`a` holds {a.dtype.value}, `b` {b.dtype.value}")
        one, two = operand(site, "a"), operand(site, "b")
        if one.extent != ROWS:
            raise site.refuse("a", f"the product has {ROWS} rows, `a` has {one.extent}")
        if two.extent % 16 or two.extent > 256:
            raise site.refuse("b", f"`b` has a multiple of 16 rows up to 256, this window has {two.extent}")
        if one.depth != two.depth:
            raise site.refuse("b", f"`a` is {one.extent} x {one.depth}, `b` {two.extent} x {two.depth}")
        if d.dtype is not DType.f32 or d.shape != (ROWS, two.extent) or d.window[-2:] != d.shape:
            message = f"this product is 128 x {two.extent} of f32, `d` is {list(d.shape)} of {d.dtype.value}"
            raise site.refuse("d", message)
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        d, a, b = op.region("d"), op.region("a"), op.region("b")
        reads = [Read(a.buffer, a.box), Read(b.buffer, b.box)]
        if op.args["accumulate"]:
            reads.append(Read(d.buffer, d.box))
        product = Async(tuple(reads), (Write(d.buffer, d.box),), group="tcgen05")
        return (placed(op, "a"), placed(op, "b"), product)

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        d, a, b = op.region("d"), op.region("a"), op.region("b")
        left, right = (_matrix(memory.read(w), w.size) for w in (a, b))
        with np.errstate(all="ignore"):
            total = left @ right.T
            if op.args["accumulate"]:
                total = total + memory.read(d).reshape(total.shape)
        memory.write(d, total.astype(np.float32))
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        descriptor = matrix_descriptor(op.site.region("b"), "K")
        assert isinstance(descriptor, Descriptor)
        steps = descriptor.depth * descriptor.element // STEP
        busy = parameters("tcgen05.m128k16.cycles_per_n8") * descriptor.extent / 8 * steps
        return Use(2 * steps, {"tensor": busy}, parameters("tcgen05.latency"), asynchronous=True)

    def lower(self, op: Lowering, out: Writer) -> None:
        a, b = (matrix_descriptor(op.site.region(name), "K") for name in ("a", "b"))
        assert isinstance(a, Descriptor)
        assert isinstance(b, Descriptor)
        kind, left = FORMATS[op.site.region("a").dtype]
        _, right = FORMATS[op.site.region("b").dtype]
        word = 1 << 4 | left << 7 | right << 10 | b.extent >> 3 << 17 | ROWS >> 4 << 24
        name = out.helper(
            f"cake_tcgen05_mma_{kind}",
            f"__device__ __forceinline__ void cake_tcgen05_mma_{kind}(\n"
            "    unsigned d, unsigned long long a, unsigned long long b, unsigned word, unsigned more) {\n"
            '    asm volatile("{\\n\\t.reg .pred p;\\n\\tsetp.ne.b32 p, %4, 0;\\n\\t"\n'
            f'        "tcgen05.mma.cta_group::1.kind::{kind} [%0], %1, %2, %3, p;\\n\\t}}"\n'
            '        :: "r"(d), "l"(a), "l"(b), "r"(word), "r"(more) : "memory");\n}',
        )
        starts = [_start(out, op.args[n], descriptor) for n, descriptor in (("a", a), ("b", b))]
        more = out.unique("cake_more")
        out.line(f"const unsigned {more} = {op.args['accumulate']};")
        for step in range(a.depth * a.element // STEP):
            at = step * STEP // a.element
            left_start, right_start = (
                f"{start} + {descriptor.ahead(at) // 16}" if at else start
                for start, descriptor in zip(starts, (a, b), strict=True)
            )
            also = "1u" if step else more
            d = out.tensor_address(op.args["d"])
            out.line(f"{name}({d}, {left_start}, {right_start}, {word:#x}u, {also});")

    cases = (
        GOOD,
        Bad(
            "by all lanes",
            """
@kernel(arch="sm_100a")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[bf16, 128, 64](swizzle=128)
    t = TensorMemory[f32, 128, 128](column=0)
    with role("mma", warps=1):
        tcgen05_mma(t, s, s, accumulate=1 > 2)  #! type/one-thread
""",
            dims={"N": 1},
        ),
        Bad(
            "rows of two swizzle spans",
            """
@kernel(arch="sm_100a")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[bf16, 128, 128](swizzle=128)
    t = TensorMemory[f32, 128, 128](column=0)
    with role("mma", warps=1):
        with one_thread():
            tcgen05_mma(t, s, s, accumulate=1 > 2)  #! type/operand
""",
            dims={"N": 1},
        ),
    )


def _matrix(array: np.ndarray[Any, Any], size: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Rows x k of a K-major window: panels follow one another along k."""
    panels = [n for n in size if n > 1]
    data = array.astype(np.float32).reshape(size)
    if len(panels) <= 2:
        return data.reshape(size[-2:])
    return np.moveaxis(data.reshape(size[-3:]), 0, 1).reshape(size[-2], -1)


def _start(out: Writer, window: Window, descriptor: Descriptor) -> str:
    """A C++ name for the descriptor of the window's first step of k."""
    name = out.unique("cake_matrix")
    address = out.shared_address(window, ["0"] * len(window.size))
    bits = f"{descriptor.tcgen05_bits:#x}ULL"
    out.line(f"const unsigned long long {name} = {bits} | (({address}) & 0x3ffffu) >> 4;")
    return name


class Tcgen05Commit(Primitive):
    """tcgen05.commit.cta_group::1.mbarrier::arrive::one."""

    names = ("tcgen05_commit",)
    archs = "sm_100a"
    single = True
    collective = False
    parameters = (parameter("barrier", "barrier"),)

    def signature(self, site: Site) -> Type | None:
        kind = site.operand("barrier").type
        assert isinstance(kind, BarrierType)
        if not kind.indexed:
            raise site.refuse("barrier", f"`{kind.name}` is an array", help=f"{kind.name}[i]")
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (CommitTo(op.args["barrier"]),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        text = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
        out.asm(text, inputs=[("r", op.args["barrier"])])

    cases = (
        GOOD,
        Bad(
            "to an array",
            """
@kernel(arch="sm_100a")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    done = MBarrier[2](arrivals=1)
    with role("mma", warps=1):
        with one_thread():
            tcgen05_commit(done)  #! type/operand
""",
            dims={"N": 1},
        ),
    )
