"""What wgmma reads and is written as: operands, instructions, descriptors, and where windows must start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cake.ir.layouts.descriptors import (
    STEP,
    WGMMA_SWIZZLE,
    Descriptor,
    Illegal,
    Major,
    encoded,
    matrix_descriptor,
)
from cake.kinds.primitive import Site, Window, Writer
from cake.machine.effects import Aligned, Region

WARP_ROWS = 16
LOW = np.uint32(0x1FFF)
"""The bits of an f32 that tf32 leaves out."""


@dataclass(frozen=True, slots=True)
class Form:
    """One instruction: n, the words of its dtypes (of `a`, `b` and the accumulator), bytes of an element, how
    many registers hold the accumulator, whether `a` is in registers, how both are stored, and whether the
    call may leave the former values of the accumulator out."""

    n: int
    a: str
    b: str
    acc: str
    element: int
    count: int
    in_registers: bool
    majors: tuple[Major, Major]
    scaled: bool

    @property
    def name(self) -> str:
        """Of the device function that issues it."""
        parts = [f"cake_wgmma_m64n{self.n}k{STEP // self.element}_{self.a}"]
        parts += [self.b] if self.b != self.a else []
        parts += [self.acc] if self.acc != "f32" else []
        a_mn, b_mn = (major == "MN" for major in self.majors)
        flags = (self.in_registers, "registers"), (a_mn, "amn"), (b_mn, "mn"), (self.scaled, "scaled")
        return "_".join([*parts, *(word for flag, word in flags if flag)])


def instruction(out: Writer, form: Form) -> str:
    """Name of the device function `void f(d, a, b)`, with `int keep` behind where the form is scaled: 0
    leaves the former values out."""
    kind, constraint = ("float", "f") if form.acc == "f32" else ("unsigned", "r")
    count = form.count
    shape = f"k{STEP // form.element}.{form.acc}.{form.a}.{form.b}"
    registers = ", ".join(f"%{i}" for i in range(count))
    operands = ", ".join(f'"+{constraint}"(d[{i}])' for i in range(count))
    transposed = [int(major == "MN") for major in form.majors]
    if form.in_registers:
        a, words = "unsigned a0, unsigned a1, unsigned a2, unsigned a3", [f'"r"(a{i})' for i in range(4)]
        first = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
        flags = f"1, 1, {transposed[1]}"
    else:
        a, words, first = "unsigned long long a", ['"l"(a)'], f"%{count}"
        flags = f"1, 1, {transposed[0]}, {transposed[1]}" if form.element == 2 else "1, 1"
    last = count + len(words)
    keep, given, before, after, scale = "", "", "", "", "1"
    if form.scaled:
        keep, given, scale = ", int keep", ', "r"(keep)', "kept"
        before = f"{{\\n\\t.reg .pred kept;\\n\\tsetp.ne.b32 kept, %{last + 1}, 0;\\n\\t"
        after = "\\n\\t}"
    return out.helper(
        form.name,
        "__device__ __forceinline__ void\n"
        f"{form.name}({kind} (&d)[{count}], {a}, unsigned long long b{keep}) {{\n"
        f'    asm volatile("{before}wgmma.mma_async.sync.aligned.m64n{form.n}{shape} "\n'
        f'        "{{{registers}}}, "\n'
        f'        "{first}, %{last}, {scale}, {flags};{after}"\n'
        f"        : {operands}\n"
        f'        : {", ".join(words)}, "l"(b){given} : "memory");\n}}',
    )


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
    if matrix.major == "MN" or not span:
        name += f"_{matrix.major.lower()}_{matrix.leading}_{matrix.stride}"
    text = (
        f"__device__ __forceinline__ unsigned long long {name}(unsigned address) {{\n"
        f"    return (address & 0x3ffffu) >> 4 | {encoded(matrix.leading)}ull << 16"
        f" | {encoded(matrix.stride)}ull << 32 | {WGMMA_SWIZZLE[span]}ull << 62;\n}}"
    )
    address = out.shared_address(window, ["0"] * len(window.size))
    variable = out.unique("cake_descriptor")
    out.line(f"const unsigned long long {variable} = {out.helper(name, text)}({address});")
    return variable


def rows_of(a: Region, warp: int) -> Region:
    """The 16 rows of `a` that belong to a warp of the warpgroup."""
    lead = (0,) * (len(a.size) - 2)
    return a.sub((*lead, warp % 4 * WARP_ROWS, 0), (*a.size[:-2], WARP_ROWS, a.size[-1]))


def operand(site: Site, name: str) -> Descriptor:
    """How the tensor cores address an operand in shared memory. Refuses what no descriptor can say."""
    found = matrix_descriptor(site.region(name), major_of(site, name))
    if isinstance(found, Illegal):
        raise site.refuse(name, found.reason, help=found.help)
    return found


def major_of(site: Site, name: str) -> Major:
    """How an operand is stored."""
    return "MN" if site.text(f"{name}_major") == "MN" else "K"


def matrix(array: np.ndarray[Any, Any], size: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """A window as rows x columns: panels follow one another along the columns."""
    data = array.astype(np.float32).reshape(size)
    if array.dtype == np.float32:
        data = (data.view(np.uint32) & ~LOW).view(np.float32)
    lead = [n for n in size[:-2] if n > 1]
    if not lead:
        return data.reshape(size[-2:])
    return np.moveaxis(data.reshape(*lead, *size[-2:]), 0, 1).reshape(size[-2], -1)
