"""Fragment layouts by name: which thread holds which element in which register.

Sources: PTX ISA, "Matrix Fragments for mma.m16n8k16", "Register Fragments" of wgmma.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil

LANES = 32


@dataclass(frozen=True, slots=True)
class RegisterLayout(ABC):
    """Base of the fragment layouts; `warps` hold one tile together."""

    @property
    @abstractmethod
    def name(self) -> str:
        """As kernel text and diagnostics call it."""

    @property
    @abstractmethod
    def warps(self) -> int:
        """Number of warps that hold one tile together."""

    @abstractmethod
    def elements(self, shape: tuple[int, ...]) -> int:
        """Elements a thread holds of a tile of `shape`."""

    @abstractmethod
    def warp_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the array that stands for one warp's part."""

    @abstractmethod
    def refusal(self, shape: tuple[int, ...]) -> str:
        """Why no tile of `shape` can have this layout; empty if it can."""

    @abstractmethod
    def coordinate(self, shape: tuple[int, ...], warp: int, lane: int, register: int) -> tuple[int, ...]:
        """The logical element in `register` of `lane` of the layout's warp number `warp`."""


@dataclass(frozen=True, slots=True)
class Replicated(RegisterLayout):
    """Every lane holds every element."""

    @property
    def name(self) -> str:
        return "replicated"

    @property
    def warps(self) -> int:
        return 1

    def elements(self, shape: tuple[int, ...]) -> int:
        count = 1
        for axis in shape:
            count *= axis
        return count

    def warp_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def refusal(self, shape: tuple[int, ...]) -> str:
        return "" if self.elements(shape) <= 256 else "over 256 replicated elements a thread"

    def coordinate(self, shape: tuple[int, ...], warp: int, lane: int, register: int) -> tuple[int, ...]:
        if not shape:
            return ()
        if len(shape) == 1:
            return (register,)
        return (register // shape[1], register % shape[1])


REPLICATED = Replicated()


@dataclass(frozen=True, slots=True)
class Vector(RegisterLayout):
    """A row spread over `over` warps: thread t holds elements `c*over*32*width + t*width ...` of each chunk.

    The last chunk may be partly phantom: registers without an element, holding the load's fill value.
    """

    width: int
    over: int

    @property
    def name(self) -> str:
        return f"vector({self.width}) over {self.over} warps"

    @property
    def warps(self) -> int:
        return self.over

    @property
    def stride(self) -> int:
        """Elements in one chunk of all warps."""
        return self.over * LANES * self.width

    def chunks(self, shape: tuple[int, ...]) -> int:
        return max(1, ceil(shape[0] / self.stride))

    def elements(self, shape: tuple[int, ...]) -> int:
        return self.chunks(shape) * self.width

    def warp_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self.chunks(shape), LANES * self.width)

    def phantoms(self, shape: tuple[int, ...]) -> int:
        """Registers' worth of elements, over all threads, that hold no element of the row."""
        return self.chunks(shape) * self.stride - shape[0]

    def refusal(self, shape: tuple[int, ...]) -> str:
        return "" if len(shape) == 1 else "only rows (one axis) can be spread as vectors"

    def coordinate(self, shape: tuple[int, ...], warp: int, lane: int, register: int) -> tuple[int, ...]:
        chunk, item = divmod(register, self.width)
        return (chunk * self.stride + (warp * LANES + lane) * self.width + item,)


@dataclass(frozen=True, slots=True)
class Accumulator(RegisterLayout):
    """The C/D fragment of mma.m16n8 (`over`=1) and wgmma.m64nN (`over`=4): m x n, rows split over warps."""

    over: int

    @property
    def name(self) -> str:
        return "mma" if self.over == 1 else "wgmma"

    @property
    def warps(self) -> int:
        return self.over

    def elements(self, shape: tuple[int, ...]) -> int:
        return shape[0] * shape[1] // (self.over * LANES)

    def warp_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[0] // self.over, shape[1])

    def refusal(self, shape: tuple[int, ...]) -> str:
        if len(shape) != 2:
            return "an accumulator has two axes"
        if shape[0] % (16 * self.over) or shape[1] % 8 or min(shape) <= 0:
            return f"rows must be a multiple of {16 * self.over} and columns of 8"
        return ""

    def coordinate(self, shape: tuple[int, ...], warp: int, lane: int, register: int) -> tuple[int, ...]:
        """Registers run over columns of 8 first, then over blocks of 16 rows."""
        per_block = shape[1] // 2
        block, rest = divmod(register, per_block)
        group, item = divmod(rest, 4)
        rows_of_warp = shape[0] // self.over
        row = warp * rows_of_warp + block * 16 + (item // 2) * 8 + lane // 4
        return (row, group * 8 + (lane % 4) * 2 + item % 2)


@dataclass(frozen=True, slots=True)
class OperandA(RegisterLayout):
    """The A fragment of mma.m16n8k16 with 16-bit elements: m x k, held by one warp."""

    @property
    def name(self) -> str:
        return "mma_a"

    @property
    def warps(self) -> int:
        return 1

    def elements(self, shape: tuple[int, ...]) -> int:
        return shape[0] * shape[1] // LANES

    def warp_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def refusal(self, shape: tuple[int, ...]) -> str:
        ok = len(shape) == 2 and shape[0] % 16 == 0 and shape[1] % 16 == 0 and min(shape) > 0
        return "" if ok else "A is m x k with both multiples of 16"

    def coordinate(self, shape: tuple[int, ...], warp: int, lane: int, register: int) -> tuple[int, ...]:
        block, item = divmod(register, 8)
        block_m, block_k = divmod(block, shape[1] // 16)
        pair, low = divmod(item, 2)
        row = block_m * 16 + (pair % 2) * 8 + lane // 4
        return (row, block_k * 16 + (pair // 2) * 8 + (lane % 4) * 2 + low)


@dataclass(frozen=True, slots=True)
class OperandB(RegisterLayout):
    """The B fragment of mma.m16n8k16 with 16-bit elements, written as n x k, held by one warp."""

    @property
    def name(self) -> str:
        return "mma_b"

    @property
    def warps(self) -> int:
        return 1

    def elements(self, shape: tuple[int, ...]) -> int:
        return shape[0] * shape[1] // LANES

    def warp_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def refusal(self, shape: tuple[int, ...]) -> str:
        ok = len(shape) == 2 and shape[0] % 8 == 0 and shape[1] % 16 == 0 and min(shape) > 0
        return "" if ok else "B is n x k with n a multiple of 8 and k of 16"

    def coordinate(self, shape: tuple[int, ...], warp: int, lane: int, register: int) -> tuple[int, ...]:
        block, item = divmod(register, 4)
        block_n, block_k = divmod(block, shape[1] // 16)
        pair, low = divmod(item, 2)
        return (block_n * 8 + lane // 4, block_k * 16 + pair * 8 + (lane % 4) * 2 + low)
