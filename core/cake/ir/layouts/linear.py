"""Linear maps over F2: a bit of the index moves a fixed set of bits of the result.

Wherever extents are powers of two, "which element does this register of this lane hold" and "where does this
element lie under a swizzle" are such maps; composing, inverting and asking for ranks then replaces counting.
Extents that are no powers of two are never rounded: layouts repeat a linear tile (`registers.Ownership`), and
buffers add up rows of any pitch before the linear swizzle (`shared.offset_map`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Linear:
    """x -> xor of `columns[i]` over the bits i that are set in x; results have `bits` bits.

    ValueError where a column has more bits.
    """

    columns: tuple[int, ...]
    bits: int

    def __post_init__(self) -> None:
        if any(not 0 <= column < 1 << self.bits for column in self.columns):
            raise ValueError(f"a column of {self.columns} does not fit {self.bits} bits")

    def __call__(self, x: int) -> int:
        out = 0
        for column in self.columns:
            if x & 1:
                out ^= column
            x >>= 1
        return out

    def then(self, after: Linear) -> Linear:
        """x -> after(self(x)). ValueError where the sizes do not meet."""
        if len(after.columns) != self.bits:
            raise ValueError(f"{self.bits} bits into a map of {len(after.columns)}")
        return Linear(tuple(after(column) for column in self.columns), after.bits)

    @property
    def rank(self) -> int:
        return len(basis(self.columns))

    @property
    def image(self) -> tuple[int, ...]:
        """A basis of the results, reduced: no vector holds the leading bit of another."""
        return basis(self.columns)

    @property
    def kernel(self) -> tuple[int, ...]:
        """A reduced basis of what is sent to 0."""
        return basis(source for value, source in _eliminate(self.columns) if not value)

    def left_inverse(self) -> Linear:
        """L with L(self(x)) == x; 0 on a complement of the image. ValueError where two inputs meet."""
        if self.rank < len(self.columns):
            raise ValueError("two inputs have the same image")
        return self._back()

    def right_inverse(self) -> Linear:
        """R with self(R(y)) == y. ValueError where some result has no input."""
        if self.rank < self.bits:
            raise ValueError("some result has no input")
        return self._back()

    def _back(self) -> Linear:
        """For each result bit that leads a vector of the reduced image, the input of that vector."""
        rows = [pair for pair in _eliminate(self.columns) if pair[0]]
        for i, (value, source) in enumerate(rows):
            lead = 1 << value.bit_length() - 1
            for j, (other, held) in enumerate(rows):
                if i != j and other & lead:
                    rows[j] = (other ^ value, held ^ source)
        back = [0] * self.bits
        for value, source in rows:
            back[value.bit_length() - 1] = source
        return Linear(tuple(back), len(self.columns))


def identity(bits: int) -> Linear:
    return Linear(tuple(1 << i for i in range(bits)), bits)


def basis(vectors: Iterable[int]) -> tuple[int, ...]:
    """The reduced basis of a span, largest first: equal spans have equal bases."""
    found: list[int] = []
    for vector in vectors:
        rest = reduce(found, vector)
        if rest:
            lead = 1 << rest.bit_length() - 1
            found = sorted([*(v ^ rest if v & lead else v for v in found), rest], reverse=True)
    return tuple(found)


def reduce(reduced: Sequence[int], vector: int) -> int:
    """`vector` modulo a span given by its reduced basis; 0 where it lies in it."""
    for v in reduced:
        if vector >> v.bit_length() - 1 & 1:
            vector ^= v
    return vector


def _eliminate(columns: Sequence[int]) -> list[tuple[int, int]]:
    """(result, input) pairs spanning the graph: results with distinct leading bits, then 0 for the kernel."""
    rows: list[tuple[int, int]] = []
    for i, column in enumerate(columns):
        value, source = column, 1 << i
        for other, held in rows:
            if other and value >> other.bit_length() - 1 & 1:
                value, source = value ^ other, source ^ held
        rows.append((value, source))
        rows.sort(reverse=True)
    return rows
