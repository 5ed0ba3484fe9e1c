"""Where the registers of a tile, of its rows and its columns stand: for what computes with coordinates."""

from __future__ import annotations

from cake.ir.layouts import LANES, Accumulator, ColumnsOf, RowsOf, TensorRows, Vector
from cake.ir.types import FragmentType
from cake.kinds.primitive import Writer


def coordinate(kind: FragmentType, axis: int, out: Writer) -> str:
    """C++ text: the coordinate along `axis` of register `i_`."""
    layout = kind.layout
    row_of_lane, column_of_lane = f"{out.lane} / 4", f"{out.lane} % 4 * 2"
    match layout:
        case Vector(width=width):
            first = f"{out.thread} * {width}"
            return f"i_ / {width} * {layout.stride} + {first} + i_ % {width}"
        case TensorRows() if axis == 1:
            return "i_"
        case TensorRows() | RowsOf(tile=TensorRows()):
            return f"{out.warp} % 4 * {LANES} + {out.lane}"
        case ColumnsOf(tile=TensorRows()):
            return "i_"
        case ColumnsOf():
            return f"i_ / 2 * 8 + {column_of_lane} + i_ % 2"
        case RowsOf(tile=Accumulator(over=over)):
            base = f"{out.warp} % {over} * {kind.shape[0] // over}"
            return f"{base} + i_ / 2 * 16 + i_ % 2 * 8 + {row_of_lane}"
        case Accumulator(over=over):
            pairs = kind.shape[1] // 4
            if axis == 1:
                return f"i_ / 2 % {pairs} / 2 * 8 + {column_of_lane} + i_ % 2"
            base = f"{out.warp} % {over} * {kind.shape[0] // over}"
            return f"{base} + i_ / {2 * pairs} * 16 + i_ / 2 % 2 * 8 + {row_of_lane}"
    raise AssertionError(layout.name)
