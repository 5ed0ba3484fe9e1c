"""Fragment layouts by name: which thread holds which element in which register.

Sources: PTX ISA, "Matrix Fragments for mma.m16n8k16", "Register Fragments" of wgmma.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil

from cake.ir.layouts.ownership import LANES, Ownership, Repeat, tile


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
    def ownership(self, shape: tuple[int, ...]) -> Ownership:
        """Who holds what of a tile of `shape`: a linear tile over F2, repeated."""

    def coordinate(self, shape: tuple[int, ...], warp: int, lane: int, register: int) -> tuple[int, ...]:
        """The logical element in `register` of `lane` of the layout's warp number `warp`."""
        return self.ownership(shape).coordinate(warp, lane, register)


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

    def ownership(self, shape: tuple[int, ...]) -> Ownership:
        axes = reversed(range(len(shape)))
        repeats = tuple(Repeat(shape[axis], axis, 1) for axis in axes)
        return Ownership(shape, tile((1,) * len(shape), (), ((0,) * len(shape),) * 5), repeats, Repeat(1))


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

    def ownership(self, shape: tuple[int, ...]) -> Ownership:
        """`width` is a power of two; the number of warps and of chunks need not be."""
        items = self.width.bit_length() - 1
        lanes = tuple((self.width << bit,) for bit in range(5))
        held = tile((self.width * LANES,), tuple((1 << bit,) for bit in range(items)), lanes)
        chunks = Repeat(self.chunks(shape), 0, self.stride)
        return Ownership(shape, held, (chunks,), Repeat(self.over, 0, LANES * self.width))


FRAGMENT_LANES = ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0))
"""What a lane's bits move in the fragments of mma and wgmma: four lanes share a row of eight elements."""


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

    def ownership(self, shape: tuple[int, ...]) -> Ownership:
        """16 x 8 tiles; registers run over columns of 8 first, then over blocks of 16 rows."""
        rows = shape[0] // self.over
        held = tile((16, 8), ((0, 1), (8, 0)), FRAGMENT_LANES)
        repeats = (Repeat(shape[1] // 8, 1, 8), Repeat(rows // 16, 0, 16))
        return Ownership(shape, held, repeats, Repeat(self.over, 0, rows))


@dataclass(frozen=True, slots=True)
class TensorRows(RegisterLayout):
    """What a warpgroup loads from tensor memory by 32x32b: thread t holds row t, column after column."""

    @property
    def name(self) -> str:
        return "tensor"

    @property
    def warps(self) -> int:
        return 4

    def elements(self, shape: tuple[int, ...]) -> int:
        return shape[1]

    def warp_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (LANES, shape[1])

    def refusal(self, shape: tuple[int, ...]) -> str:
        ok = len(shape) == 2 and shape[0] == 4 * LANES and shape[1] > 0
        return "" if ok else f"a warpgroup holds {4 * LANES} rows, one a thread"

    def ownership(self, shape: tuple[int, ...]) -> Ownership:
        held = tile((LANES, 1), (), tuple((1 << bit, 0) for bit in range(5)))
        return Ownership(shape, held, (Repeat(shape[1], 1, 1),), Repeat(4, 0, LANES))


CHUNK = 16
"""Bytes of a row of an 8 x 8 matrix as ldmatrix loads it: four lanes hold a word each."""


@dataclass(frozen=True, slots=True)
class OperandA(RegisterLayout):
    """The A fragment of mma.m16n8 with elements of `bytes`: m x k, held by one warp. An instruction takes two
    chunks of 16 bytes along k (m16n8k16 of 16-bit elements), or one where k is an odd number of them."""

    bytes: int = 2

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
        chunk = CHUNK // self.bytes
        ok = len(shape) == 2 and shape[0] % 16 == 0 and shape[1] % chunk == 0 and min(shape) > 0
        return "" if ok else f"A is m x k with m a multiple of 16 and k of {chunk}"

    def ownership(self, shape: tuple[int, ...]) -> Ownership:
        """Tiles of 16 rows and the k of an instruction, along k first."""
        return _operand(shape, 16, self.bytes)


@dataclass(frozen=True, slots=True)
class OperandB(RegisterLayout):
    """The B fragment of mma.m16n8 with elements of `bytes`, written as n x k, held by one warp; see A."""

    bytes: int = 2

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
        chunk = CHUNK // self.bytes
        ok = len(shape) == 2 and shape[0] % 8 == 0 and shape[1] % chunk == 0 and min(shape) > 0
        return "" if ok else f"B is n x k with n a multiple of 8 and k of {chunk}"

    def ownership(self, shape: tuple[int, ...]) -> Ownership:
        """Tiles of 8 rows and the k of an instruction, along k first."""
        return _operand(shape, 8, self.bytes)


def depth(k: int, bytes: int) -> int:
    """Elements along k that one instruction of mma.sync takes, of operands with `k` elements of `bytes`."""
    chunk = CHUNK // bytes
    return 2 * chunk if k % (2 * chunk) == 0 else chunk


def _operand(shape: tuple[int, ...], rows: int, bytes: int) -> Ownership:
    word, step = 4 // bytes, depth(shape[1], bytes)
    registers = [(0, 1 << bit) for bit in range(word.bit_length() - 1)]
    registers += [(8, 0)] if rows == 16 else []
    registers += [(0, 4 * word)] if step > 4 * word else []
    lanes = ((0, word), (0, 2 * word), (1, 0), (2, 0), (4, 0))
    repeats = (Repeat(shape[1] // step, 1, step), Repeat(shape[0] // rows, 0, rows))
    return Ownership(shape, tile((rows, step), registers, lanes), repeats, Repeat(1))
