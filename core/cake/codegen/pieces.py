"""Pieces of CUDA text that several primitives emit: elements of packed fragments, conversions, loops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cake.ir.types import DType
from cake.kinds.primitive import Registers, Writer

CTYPES = {DType.f32: "float", DType.i32: "int", DType.u32: "unsigned", DType.pred: "bool"}


def ctype(dtype: DType) -> str:
    """The C type of one register of a fragment; 16- and 8-bit elements are packed in `unsigned`."""
    return CTYPES.get(dtype, "unsigned")


def packing(dtype: DType) -> int:
    """Elements in one register: as many as fit 32 bits, one condition."""
    return 1 if dtype is DType.pred else 4 // dtype.bytes


@contextmanager
def loop(out: Writer, variable: str, count: int) -> Iterator[None]:
    """An unrolled loop over `count` registers."""
    out.line("#pragma unroll")
    out.line(f"for (int {variable} = 0; {variable} < {count}; ++{variable}) {{")
    yield
    out.line("}")


_TO_FLOAT = {
    DType.bf16: (
        "cake_bf16_to_float",
        "__device__ __forceinline__ float cake_bf16_to_float(unsigned pair, int high) {\n"
        "    return __uint_as_float(high ? pair & 0xffff0000u : pair << 16);\n}",
    ),
    DType.f16: (
        "cake_f16_to_float",
        "__device__ __forceinline__ float cake_f16_to_float(unsigned pair, int high) {\n"
        "    float value;\n"
        '    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)(high ? pair >> 16 : pair)));\n'
        "    return value;\n}",
    ),
}
_PACK = {
    DType.bf16: (
        "cake_pack_bf16",
        "__device__ __forceinline__ unsigned cake_pack_bf16(float low, float high) {\n"
        "    unsigned pair;\n"
        '    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));\n'
        "    return pair;\n}",
    ),
    DType.f16: (
        "cake_pack_f16",
        "__device__ __forceinline__ unsigned cake_pack_f16(float low, float high) {\n"
        "    unsigned pair;\n"
        '    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));\n'
        "    return pair;\n}",
    ),
}


def as_float(out: Writer, registers: Registers, index: str) -> str:
    """C++ expression: element number `index` (a C++ expression) as a float."""
    dtype = registers.type.dtype
    if dtype is DType.f32:
        return f"{registers.name}[{index}]"
    name, text = _TO_FLOAT[dtype]
    return f"{out.helper(name, text)}({registers.name}[({index}) / 2], ({index}) & 1)"


def pack(out: Writer, dtype: DType, low: str, high: str) -> str:
    """C++ expression: two floats rounded to nearest even and packed, `low` in the low half."""
    name, text = _PACK[dtype]
    return f"{out.helper(name, text)}({low}, {high})"


def number(value: float) -> str:
    """A float literal of C++, exact for float32 values."""
    if value != value or value in (float("inf"), float("-inf")):
        return {float("inf"): "__int_as_float(0x7f800000)", float("-inf"): "__int_as_float(0xff800000)"}.get(
            value, "__int_as_float(0x7fffffff)"
        )
    text = repr(float(value))
    return text + "f" if "." in text or "e" in text else text + ".0f"


def bits(dtype: DType, value: float) -> int:
    """The bit pattern of `value` in `dtype`."""
    import numpy as np

    raw = np.array(value).astype(dtype.numpy).tobytes()
    return int.from_bytes(raw, "little")


ACCESS = {
    32: ("cake_uint8", 8),
    16: ("uint4", 4),
    8: ("uint2", 2),
    4: ("unsigned", 1),
    2: ("unsigned short", 1),
    1: ("unsigned char", 1),
}
"""C type moving that many bytes at once, and how many 32-bit registers it fills."""
FIELDS = "xyzwabcd"
"""The registers of such a type by name."""
_WIDE = "struct cake_uint8 {\n    unsigned x, y, z, w, a, b, c, d;\n};"


def joined(out: Writer, size: int, words: Sequence[str]) -> str:
    """C++ expression of the type that moves `size` bytes, made of 32-bit words."""
    kind, _ = ACCESS[size]
    if size == 32:
        return f"{out.helper(kind, _WIDE)}{{{', '.join(words)}}}"
    return words[0] if len(words) == 1 else f"make_{kind}({', '.join(words)})"


def global_load(out: Writer, size: int, qualifier: str) -> str:
    """Name of a device function `T f(const void*)` that loads `size` bytes of global memory; `qualifier` is
    the cache operator of PTX, as ".L1::no_allocate"."""
    kind, vector, constraint, places = _global(out, size)
    slots = ", ".join(f"%{i}" for i in range(len(places)))
    slots = f"{{{slots}}}" if len(places) > 1 else slots
    outputs = ", ".join(f'"={constraint}"({place})' for place in places)
    name = f"cake_load_{size}{_word(qualifier)}"
    return out.helper(
        name,
        f"__device__ __forceinline__ {kind} {name}(const void* from) {{\n    {kind} value;\n"
        f'    asm volatile("ld.global{qualifier}{vector} {slots}, [%{len(places)}];"\n'
        f'        : {outputs} : "l"(from) : "memory");\n    return value;\n}}',
    )


def global_store(out: Writer, size: int, qualifier: str) -> str:
    """Name of a device function `void f(void*, T)` that stores `size` bytes to global memory."""
    kind, vector, constraint, places = _global(out, size)
    slots = ", ".join(f"%{i + 1}" for i in range(len(places)))
    slots = f"{{{slots}}}" if len(places) > 1 else slots
    inputs = ", ".join(f'"{constraint}"({place})' for place in places)
    name = f"cake_store_{size}{_word(qualifier)}"
    return out.helper(
        name,
        f"__device__ __forceinline__ void {name}(void* to, {kind} value) {{\n"
        f'    asm volatile("st.global{qualifier}{vector} [%0], {slots};"\n'
        f'        :: "l"(to), {inputs} : "memory");\n}}',
    )


def _global(out: Writer, size: int) -> tuple[str, str, str, list[str]]:
    """C type, vector and width as PTX says them, constraint and places of the registers."""
    kind, registers = ACCESS[size]
    if size == 32:
        out.helper(kind, _WIDE)
    vector = f".v{registers}.b32" if registers > 1 else f".b{8 * size}"
    places = [f"value.{field}" for field in FIELDS[:registers]] if registers > 1 else ["value"]
    return kind, vector, "h" if size == 2 else "r", places


def _word(qualifier: str) -> str:
    return re.sub(r"\W+", "_", qualifier)


_SHARED = {
    16: ("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];", "st.shared.v4.b32 [%0], {%1, %2, %3, %4};", "r", "xyzw"),
    8: ("ld.shared.v2.b32 {%0, %1}, [%2];", "st.shared.v2.b32 [%0], {%1, %2};", "r", "xy"),
    4: ("ld.shared.b32 %0, [%1];", "st.shared.b32 [%0], %1;", "r", ""),
    2: ("ld.shared.b16 %0, [%1];", "st.shared.b16 [%0], %1;", "h", ""),
}


def shared_load(out: Writer, size: int) -> str:
    """Name of a device function `T f(unsigned address)` that loads `size` bytes of shared memory."""
    read, _, constraint, fields = _SHARED[size]
    kind, _ = ACCESS[size]
    outputs = ", ".join(f'"={constraint}"(value{f".{x}" if x else ""})' for x in fields or [""])
    return out.helper(
        f"cake_shared_load_{size}",
        f"__device__ __forceinline__ {kind} cake_shared_load_{size}(unsigned address) {{\n"
        f"    {kind} value;\n"
        f'    asm volatile("{read}" : {outputs} : "r"(address) : "memory");\n'
        "    return value;\n}",
    )


def shared_store(out: Writer, size: int) -> str:
    """Name of a device function `void f(unsigned address, T value)` that stores `size` bytes."""
    _, write, constraint, fields = _SHARED[size]
    kind, _ = ACCESS[size]
    inputs = ", ".join(f'"{constraint}"(value{f".{x}" if x else ""})' for x in fields or [""])
    return out.helper(
        f"cake_shared_store_{size}",
        f"__device__ __forceinline__ void cake_shared_store_{size}(unsigned address, {kind} value) {{\n"
        f'    asm volatile("{write}" :: "r"(address), {inputs} : "memory");\n}}',
    )
