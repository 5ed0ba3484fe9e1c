"""Matrices in shared memory as the tensor cores address them: the descriptors of wgmma and tcgen05.mma.

A descriptor names a start address, a swizzle and two byte offsets, and from these the hardware forms the
address of every element of a *canonical layout*. `matrix_descriptor` says which of them a window of a buffer
is, or why it is none. Extents that an instruction prescribes (64 rows of A, n up to 256) are its own matter.

Sources: PTX ISA, "Matrix Descriptor Format", "Strides", "Canonical Layouts" (wgmma), "Shared memory
descriptor", "Valid Combinations of Type-Size, Major-ness and Swizzling" (tcgen05).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from cake.ir.layouts.legality import CHUNK, Illegal

if TYPE_CHECKING:
    from cake.ir.types import DType, RegionType

Major = Literal["K", "MN"]
"""The axis along which neighbouring elements are neighbours in memory."""

GROUP = 8
"""Rows of a core matrix."""
STEP = 32
"""Bytes of k that one instruction takes, whatever the element type."""

WGMMA_SWIZZLE = {0: 0, 128: 1, 64: 2, 32: 3}
"""Swizzle in bytes -> bits 62-63 of a matrix descriptor of wgmma."""
TCGEN05_SWIZZLE = {0: 0, 128: 2, 64: 4, 32: 6}
"""Swizzle in bytes -> bits 61-63 of a shared memory descriptor of tcgen05."""
TCGEN05_VERSION = 0b001
"""Bits 46-48 of a shared memory descriptor of tcgen05."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A matrix of `extent` (along M or N) x `depth` (along K) elements of `element` bytes in shared memory.

    `leading` and `stride` are the byte offsets of the descriptor; `panel` the bytes from one panel of the
    window to the next. The base offset (bits 49-51) is 0: windows start at whole swizzle patterns, which
    `row_alignment` (bytes, of the window's start along its rows) and `column_alignment` (bytes, inside a row)
    demand.
    """

    major: Major
    swizzle: int
    element: int
    extent: int
    depth: int
    leading: int
    stride: int
    panel: int

    @property
    def unit(self) -> int:
        """Bytes of one row: the swizzle span, or a row of a core matrix."""
        return self.swizzle or CHUNK

    @property
    def row_alignment(self) -> int:
        return GROUP * self.unit

    @property
    def column_alignment(self) -> int:
        return self.unit if self.major == "MN" else min(STEP, self.unit)

    @property
    def wgmma_bits(self) -> int:
        """The 64-bit matrix descriptor of wgmma without its start address (bits 0-13)."""
        return self._offsets | WGMMA_SWIZZLE[self.swizzle] << 62

    @property
    def tcgen05_bits(self) -> int:
        """The 64-bit shared memory descriptor of tcgen05 without its start address; offsets are relative."""
        return self._offsets | TCGEN05_VERSION << 46 | TCGEN05_SWIZZLE[self.swizzle] << 61

    @property
    def _offsets(self) -> int:
        return encoded(self.leading) << 16 | encoded(self.stride) << 32

    def ahead(self, k: int) -> int:
        """Bytes by which the start address moves to reach element `k` along K, a multiple of one
        instruction's share (`STEP` bytes of k). ValueError for another."""
        if k * self.element % STEP:
            raise ValueError(f"k = {k} is no multiple of {STEP // self.element} elements")
        return self.offset(0, k)

    def offset(self, mn: int, k: int) -> int:
        """Bytes from the start address to element (mn, k) before the swizzle, in the canonical layout."""
        per = CHUNK // self.element
        if self.major == "MN":
            span = self.unit // self.element
            across, inside = divmod(mn, span)
            group, row = divmod(k, GROUP)
            between, down = (self.leading, self.stride) if self.swizzle else (self.stride, self.leading)
            return across * between + inside * self.element + group * down + row * self.unit
        group, row = divmod(mn, GROUP)
        start = group * self.stride + row * self.unit
        if not self.swizzle:
            return start + k // per * self.leading + k % per * self.element
        panel, inside = divmod(k, self.swizzle // self.element)
        return start + panel * self.panel + inside * self.element


def encoded(value: int) -> int:
    """An address or offset in bytes as descriptors hold it (PTX ISA, matrix-descriptor-encode)."""
    return (value & 0x3FFFF) >> 4


@lru_cache(maxsize=256)
def matrix_descriptor(window: RegionType, major: Major) -> Descriptor | Illegal:
    """The descriptor of a matrix operand, or why the tensor cores cannot read it so.

    K-major: rows run along M or N, columns along K. MN-major: rows along K. The window is rows x columns, or
    panels x rows x columns, whose panels follow one another along the columns; rows of its buffer are one
    swizzle span, or 16 bytes without a swizzle.
    """
    buffer, size = window.buffer, window.dtype.bytes
    rank = len(window.shape)
    if buffer.space != "shared":
        return Illegal(f"`{buffer.name}` is not in shared memory")
    if rank not in (2, 3) or window.window[-rank:] != window.shape:
        reason = (
            f"a matrix is rows x columns, or panels x rows x columns, on the last axes of `{buffer.name}`"
        )
        return Illegal(reason, "index the axes before them")
    pitch, span = buffer.shape[-1] * size, buffer.swizzle
    unit = span or CHUNK
    if pitch != unit:
        need = f"Shared[{window.dtype.value}, ..., {128 // size}](swizzle=128)"
        if not span:
            reason = (
                f"rows of `{buffer.name}` are {pitch} bytes without a swizzle; core matrices have rows of 16"
            )
            return Illegal(reason, need)
        reason = f"rows of `{buffer.name}` are {pitch} bytes under a swizzle of {span}; a row is one span"
        return Illegal(reason, need)
    panels, rows, columns = (1, *window.shape) if rank == 2 else window.shape
    if rows % GROUP:
        what = "rows" if major == "K" else "rows of k"
        return Illegal(f"{what} come in groups of {GROUP}, this window has {rows}")
    if columns != buffer.shape[-1] and (panels > 1 or major == "MN"):
        return Illegal(f"columns of `{buffer.name}` are taken whole, here {columns} of {buffer.shape[-1]}")
    extent, depth = (rows, panels * columns) if major == "K" else (panels * columns, rows)
    if depth * size % STEP:
        return Illegal(f"k is a multiple of {STEP // size} {window.dtype.value} elements, here {depth}")
    panel = buffer.shape[-2] * pitch
    if span:
        # K-major spans have no leading dimension: its field is not used and holds one unit.
        leading, stride = (CHUNK if major == "K" else panel), GROUP * span
    elif major == "K":
        leading, stride = panel, GROUP * CHUNK
    else:
        leading, stride = GROUP * CHUNK, panel
    return Descriptor(major, span, size, extent, depth, leading, stride, panel)


def major_refusal(instruction: Literal["wgmma", "tcgen05"], dtype: DType, major: Major) -> str:
    """Why `instruction` takes no `major` operand of `dtype`; empty if it does. MN-major operands of 32 bits
    exist for tcgen05 only under the 128-byte swizzle with 32-byte atoms, which no buffer here has."""
    if major == "K" or dtype.bytes == 2 or (instruction == "tcgen05" and dtype.bytes == 1):
        return ""
    sizes = "16-bit" if instruction == "wgmma" else "8- and 16-bit"
    return f"{instruction} takes MN-major operands of {sizes} elements only, this is {dtype.value}"
