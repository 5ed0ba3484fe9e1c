"""mma: matrix multiply-accumulate of one warp, mma.sync (sm_80)

Takes
    `acc = mma(a, b, acc)`: a is m x k in layout mma_a, b is n x k in layout mma_b, acc is m x n in layout
    mma; computes acc + a @ b.T in the registers of acc. bf16 or f16 (m16n8k16, or m16n8k8 where k is an odd
    multiple of 8) into f32, f16 also into f16; e4m3 and e5m2, mixed or not (m16n8k32, from sm_89) into f32;
    f32 with `kind="tf32"` (m16n8k8 or m16n8k4), which leaves the lowest 13 bits of the factors out.
Touches
    Registers only.
Completes when
    Program order.
Source
    PTX ISA, "Multiply-and-Accumulate Instruction: mma", "Matrix Fragments for mma.m16n8k4" and following.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.codegen.pieces import loop
from cake.ir.arch import number
from cake.ir.layouts import Accumulator, OperandA, OperandB, depth
from cake.ir.layouts.legality import CHUNK
from cake.ir.types import DType, Type
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
from cake.machine.effects import Effect

HALVES = (DType.bf16, DType.f16)
EIGHTS = (DType.e4m3, DType.e5m2)
EIGHTS_SINCE = 89
"""sm number from which mma.sync multiplies eight-bit floats."""
LOW = np.uint32(0x1FFF)
"""The bits of an f32 that tf32 leaves out."""


class Mma(Primitive):
    """16-, 8-bit and tf32 operands."""

    names = ("mma",)
    in_place = "accumulator"
    parameters = (
        parameter("a", "fragment"),
        parameter("b", "fragment"),
        parameter("accumulator", "fragment"),
        parameter("kind", "text", default=""),
    )
    uses = ("mma.flops", "mma.latency")

    def signature(self, site: Site) -> Type | None:
        a, b, acc = (site.fragment(name) for name in ("a", "b", "accumulator"))
        for name, kind, layout in (
            ("a", a, OperandA(a.dtype.bytes)),
            ("b", b, OperandB(b.dtype.bytes)),
            ("accumulator", acc, Accumulator(1)),
        ):
            if kind.layout != layout:
                raise site.refuse(
                    name, f"`{name}` is in layout {layout.name}, this one in {kind.layout.name}"
                )
        self._dtypes(site, a.dtype, b.dtype, acc.dtype)
        if a.shape[1] != b.shape[1] or acc.shape != (a.shape[0], b.shape[0]):
            message = f"{list(a.shape)} times {list(b.shape)} transposed is not {list(acc.shape)}"
            raise site.refuse("accumulator", message)
        if a.dtype in EIGHTS and depth(a.shape[1], 1) != 32:
            raise site.refuse("a", f"k is a multiple of 32 of eight-bit elements, here {a.shape[1]}")
        return acc

    def _dtypes(self, site: Site, a: DType, b: DType, acc: DType) -> None:
        if a is not b and not (a in EIGHTS and b in EIGHTS):
            raise site.refuse("b", f"operands differ: {a.value} and {b.value}")
        if a in EIGHTS and number(site.arch) < EIGHTS_SINCE:
            message = f"mma of {a.value} needs >=sm_{EIGHTS_SINCE}, the target is {site.arch}"
            raise site.refuse("a", message, code="arch/unsupported")
        if a not in (*HALVES, *EIGHTS, DType.f32):
            raise site.refuse("a", f"mma multiplies floats, this is {a.value}")
        if site.text("kind") != ("tf32" if a is DType.f32 else ""):
            help = 'mma(a, b, acc, kind="tf32")' if a is DType.f32 else ""
            raise site.refuse("a", "f32 is multiplied as tf32, and nothing else is", help=help)
        if acc is not DType.f32 and not (acc is a is DType.f16):
            message = f"products of {a.value} are added up in f32, this accumulator is {acc.value}"
            raise site.refuse("accumulator", message)

    def effects(self, op: Op) -> Sequence[Effect]:
        return ()

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        acc = op.args["accumulator"].array
        a, b = (_factor(op.args[n].array) for n in ("a", "b"))
        with np.errstate(all="ignore"):
            if acc.dtype == np.float32:
                return np.asarray(acc + a @ b.T, np.float32)
            step = depth(a.shape[1], 2)
            for k in range(0, a.shape[1], step):
                acc = np.asarray(acc + a[:, k : k + step] @ b[:, k : k + step].T, acc.dtype)
            return np.asarray(acc)

    def time(self, op: Op, parameters: Parameters) -> Use:
        kind = op.site.fragment("a")
        m, k = kind.shape
        n, size = op.site.fragment("b").shape[0], kind.dtype.bytes
        instructions = m // 16 * (n // 8) * (k // depth(k, size))
        # The rate is that of 16-bit operands; others take as long a byte.
        work = m * n * k * size / parameters("mma.flops")
        return Use(instructions, {"tensor": work}, parameters("mma.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        a: Registers = op.args["a"]
        b: Registers = op.args["b"]
        assert op.result is not None
        m, k = a.type.shape
        n, size = b.type.shape[0], a.type.dtype.bytes
        step = depth(k, size)
        left, right = (2, 1) if step * size == CHUNK else (4, 2)
        held = 4 if op.result.type.dtype is DType.f32 else 2
        call = _step(out, (a, b, op.result), step, (left, right, held))
        blocks_k = k // step
        with loop(out, "k_", blocks_k), loop(out, "i_", m // 16), loop(out, "j_", n // 8):
            d = f"&{op.result.name}[i_ * {n // 8 * held} + j_ * {held}]"
            one = f"&{a.name}[(i_ * {blocks_k} + k_) * {left}]"
            out.line(f"{call}({d}, {one}, &{b.name}[(j_ * {blocks_k} + k_) * {right}]);")

    cases = (
        Good(
            "two blocks each way",
            """
@kernel(arch="sm_80")
def product(a: Global[f16, M, K], b: Global[f16, N, K], c: GlobalOut[f32, M, N]):
    require(K % 8 == 0, N % 2 == 0)
    grid(1)
    s = Shared[f16, 32, 32](swizzle=64)
    t = Shared[f16, 16, 32](swizzle=64)
    with role("all", warps=1):
        cp_async(s[:, :], a[0:+32, 0:+32])
        cp_async(t[:, :], b[0:+16, 0:+32])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f32, 32, 16, layout="mma")
        for k in unroll(2):
            fa = ldmatrix(s[:, k * 16:+16], layout="mma_a")
            fb = ldmatrix(t[:, k * 16:+16], layout="mma_b")
            acc = mma(fa, fb, acc)
        store(c[0:+32, 0:+16], acc, vector=2)
""",
            dims={"M": 32, "N": 16, "K": 32},
            expect=lambda i: {"c": i["a"].astype(np.float64) @ i["b"].astype(np.float64).T},
            rtol=1e-6,
        ),
        Good(
            "a padded product",
            """
@kernel(arch="sm_80")
def product(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0, M % 2 == 0)
    grid(1)
    s = Shared[bf16, 16, 16](swizzle=32)
    with role("all", warps=1):
        cp_async(s[:, :], a[0:+16, 0:+16])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f32, 16, 16, layout="mma")
        acc = mma(ldmatrix(s[:, :], layout="mma_a"), ldmatrix(s[:, :], layout="mma_b"), acc)
        store(c[0:+16, 0:+16], acc, vector=1)
""",
            dims={"M": 10, "K": 8},
            expect=lambda i: {"c": i["a"].astype(np.float64) @ i["a"].astype(np.float64).T},
            rtol=1e-6,
        ),
        Good(
            "eight-bit floats of two kinds",
            """
@kernel(arch="sm_89")
def product(a: Global[e4m3, M, K], b: Global[e5m2, N, K], c: GlobalOut[f32, M, N]):
    require(K % 16 == 0, N % 2 == 0)
    grid(1)
    s = Shared[e4m3, 32, 64](swizzle=64)
    t = Shared[e5m2, 24, 64](swizzle=64)
    with role("all", warps=1):
        cp_async(s[:, :], a[0:+32, 0:+64])
        cp_async(t[:, :], b[0:+24, 0:+64])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f32, 32, 24, layout="mma")
        acc = mma(ldmatrix(s[:, :], layout="mma_a"), ldmatrix(t[:, :], layout="mma_b"), acc)
        store(c[0:+32, 0:+24], acc, vector=2)
""",
            dims={"M": 30, "N": 24, "K": 48},
            expect=lambda i: {"c": i["a"].astype(np.float64) @ i["b"].astype(np.float64).T},
            rtol=1e-3,
        ),
        Good(
            "tf32, twelve along k",
            """
@kernel(arch="sm_80")
def product(a: Global[f32, M, K], b: Global[f32, N, K], c: GlobalOut[f32, M, N]):
    require(K % 4 == 0, N % 2 == 0)
    grid(1)
    s = Shared[f32, 16, 16](swizzle=64)
    t = Shared[f32, 16, 16](swizzle=64)
    with role("all", warps=1):
        cp_async(s[:, :], a[0:+16, 0:+16])
        cp_async(t[:, :], b[0:+16, 0:+16])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f32, 16, 16, layout="mma")
        fa = ldmatrix(s[:, 0:+8], layout="mma_a")
        acc = mma(fa, ldmatrix(t[:, 0:+8], layout="mma_b"), acc, kind="tf32")
        fb = ldmatrix(t[:, 8:+4], layout="mma_b")
        acc = mma(ldmatrix(s[:, 8:+4], layout="mma_a"), fb, acc, kind="tf32")
        store(c[0:+16, 0:+16], acc, vector=2)
""",
            dims={"M": 16, "N": 10, "K": 12},
            expect=lambda i: {"c": i["a"].astype(np.float64) @ i["b"].astype(np.float64).T},
            rtol=4e-3,
        ),
        Good(
            "added up in f16",
            """
@kernel(arch="sm_80")
def product(a: Global[f16, M, K], c: GlobalOut[f16, M, M]):
    require(K % 8 == 0, M % 2 == 0)
    grid(1)
    s = Shared[f16, 16, 32](swizzle=64)
    with role("all", warps=1):
        cp_async(s[:, :], a[0:+16, 0:+32])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f16, 16, 16, layout="mma")
        acc = mma(ldmatrix(s[:, :], layout="mma_a"), ldmatrix(s[:, :], layout="mma_b"), acc)
        fa = ldmatrix(s[:, 0:+8], layout="mma_a")
        acc = mma(fa, ldmatrix(s[:, 0:+8], layout="mma_b"), acc)
        store(c[0:+16, 0:+16], acc, vector=2)
""",
            dims={"M": 16, "K": 32},
            expect=lambda i: {
                "c": i["a"].astype(np.float64) @ i["a"].astype(np.float64).T
                + i["a"][:, :8].astype(np.float64) @ i["a"][:, :8].astype(np.float64).T
            },
            rtol=2e-3,
        ),
        Bad(
            "f32 that is not said to be tf32",
            """
@kernel(arch="sm_80")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 16, 8](swizzle=32)
    with role("all", warps=1):
        acc = zeros(f32, 16, 16, layout="mma")
        fa = ldmatrix(s[:, :], layout="mma_a")
        acc = mma(fa, ldmatrix(s[:, :], layout="mma_b"), acc)  #! type/operand
""",
            dims={"N": 1},
        ),
        Bad(
            "eight bits before Ada",
            """
@kernel(arch="sm_80")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[e4m3, 16, 32](swizzle=32)
    with role("all", warps=1):
        acc = zeros(f32, 16, 16, layout="mma")
        fa = ldmatrix(s[:, :], layout="mma_a")
        acc = mma(fa, ldmatrix(s[:, :], layout="mma_b"), acc)  #! arch/unsupported
""",
            dims={"N": 1},
        ),
        Bad(
            "not assigned back",
            """
@kernel(arch="sm_80")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[bf16, 16, 16](swizzle=32)
    with role("all", warps=1):
        acc = zeros(f32, 16, 16, layout="mma")
        fa = ldmatrix(s[:, :], layout="mma_a")
        fb = ldmatrix(s[:, :], layout="mma_b")
        d = mma(fa, fb, acc)  #! type/in-place
""",
            dims={"N": 1},
        ),
    )


def _factor(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """In f32, of which tf32 keeps the leading bits."""
    if array.dtype != np.float32:
        return np.asarray(array.astype(np.float32))
    return np.asarray((array.view(np.uint32) & ~LOW).view(np.float32))


def _step(
    out: Writer, operands: tuple[Registers, Registers, Registers], k: int, counts: tuple[int, int, int]
) -> str:
    """Name of a device function `void f(d, a, b)` of one instruction."""
    a, b, d = operands
    words = [r.type.dtype.value for r in operands]
    one, two = ("tf32" if word == "f32" else word for word in words[:2])
    left, right, held = counts
    name = f"cake_mma_{one}" if k * a.type.dtype.bytes > CHUNK else f"cake_mma_{one}_k{k}"
    name += "" if one == two else f"_{two}"
    name += "" if held == 4 else "_f16"
    slots = iter(range(held + left + right))
    d_text, a_text, b_text = (", ".join(f"%{next(slots)}" for _ in range(n)) for n in (held, left, right))
    kinds = [("f" if r.ctype == "float" else "r") for r in operands]
    results = ", ".join(f'"+{kinds[2]}"(d[{i}])' for i in range(held))
    inputs = [f'"{kinds[0]}"(a[{i}])' for i in range(left)] + [f'"{kinds[1]}"(b[{i}])' for i in range(right)]
    if kinds[0] == "f":
        # tf32 travels as bits.
        inputs = [text.replace('"f"(', '"r"(__float_as_uint(') + ")" for text in inputs]
    return out.helper(
        name,
        f"__device__ __forceinline__ void {name}({d.ctype}* d, const {a.ctype}* a, const {b.ctype}* b) {{\n"
        f'    asm volatile("mma.sync.aligned.m16n8k{k}.row.col.{words[2]}.{one}.{two}.{words[2]} "\n'
        f'        "{{{d_text}}}, {{{a_text}}}, {{{b_text}}}, {{{d_text}}};"\n'
        f"        : {results}\n"
        f"        : {', '.join(inputs)});\n}}",
    )
