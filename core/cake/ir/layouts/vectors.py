"""A value for each row, or each column, of a fragment: held beside the elements that it goes with."""

from __future__ import annotations

from dataclasses import dataclass

from cake.ir.layouts.ownership import LANES, Ownership, Repeat, tile
from cake.ir.layouts.registers import Accumulator, RegisterLayout, TensorRows

_ROW_LANES = ((0,), (0,), (1,), (2,), (4,))
_COLUMN_LANES = ((2,), (4,), (0,), (0,), (0,))


@dataclass(frozen=True, slots=True)
class RowsOf(RegisterLayout):
    """One value a row of a tile in layout `tile`: a thread holds those of its rows, four lanes the same."""

    tile: Accumulator | TensorRows

    @property
    def name(self) -> str:
        return f"{self.tile.name}_rows"

    @property
    def warps(self) -> int:
        return self.tile.warps

    def elements(self, shape: tuple[int, ...]) -> int:
        return 1 if isinstance(self.tile, TensorRows) else shape[0] // (8 * self.tile.over)

    def warp_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[0] // self.warps,)

    def refusal(self, shape: tuple[int, ...]) -> str:
        least = 4 * LANES if isinstance(self.tile, TensorRows) else 16 * self.tile.over
        exact = isinstance(self.tile, TensorRows) and shape != (least,)
        if len(shape) != 1 or shape[0] <= 0 or shape[0] % least or exact:
            return f"rows come in multiples of {least}, on one axis"
        return ""

    def ownership(self, shape: tuple[int, ...]) -> Ownership:
        rows = shape[0] // self.warps
        if isinstance(self.tile, TensorRows):
            lanes = tuple((1 << bit,) for bit in range(5))
            return Ownership(shape, tile((LANES,), (), lanes), (), Repeat(4, 0, LANES))
        held = tile((16,), ((8,),), _ROW_LANES)
        return Ownership(shape, held, (Repeat(rows // 16, 0, 16),), Repeat(self.tile.over, 0, rows))


@dataclass(frozen=True, slots=True)
class ColumnsOf(RegisterLayout):
    """One value a column of a tile in layout `tile`: a thread holds those of its columns, as all warps do."""

    tile: Accumulator | TensorRows

    @property
    def name(self) -> str:
        return f"{self.tile.name}_columns"

    @property
    def warps(self) -> int:
        return 1

    def elements(self, shape: tuple[int, ...]) -> int:
        return shape[0] if isinstance(self.tile, TensorRows) else shape[0] // 4

    def warp_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def refusal(self, shape: tuple[int, ...]) -> str:
        return "" if len(shape) == 1 and shape[0] > 0 and shape[0] % 8 == 0 else "columns come in eights"

    def ownership(self, shape: tuple[int, ...]) -> Ownership:
        if isinstance(self.tile, TensorRows):
            return Ownership(shape, tile((1,), (), ((0,),) * 5), (Repeat(shape[0], 0, 1),), Repeat(1))
        held = tile((8,), ((1,),), _COLUMN_LANES)
        return Ownership(shape, held, (Repeat(shape[0] // 8, 0, 8),), Repeat(1))


TILES: dict[str, Accumulator | TensorRows] = {
    "mma": Accumulator(1),
    "wgmma": Accumulator(4),
    "tensor": TensorRows(),
}
"""Layouts of tiles by the names that authors give them."""


def named(name: str) -> RegisterLayout | None:
    """The layout that an author calls `name`: a tile's, or one of its rows or columns. None for no name."""
    stem, _, part = name.partition("_")
    found = TILES.get(stem)
    if found is None or part not in ("", "rows", "columns"):
        return None
    return {"": found, "rows": RowsOf(found), "columns": ColumnsOf(found)}[part]
