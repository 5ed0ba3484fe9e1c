"""Layouts by name: which thread holds which element of a fragment, and where a byte lies in shared memory.

Authors write names; the maps behind them are linear over F2 wherever sizes are powers of two, and yield
footprints, bank conflicts and legality.
"""

from cake.ir.layouts.ownership import LANES
from cake.ir.layouts.registers import (
    REPLICATED,
    Accumulator,
    OperandA,
    OperandB,
    RegisterLayout,
    Replicated,
    TensorRows,
    Vector,
    depth,
)
from cake.ir.layouts.shared import SWIZZLES, Traffic, least_wavefronts, swizzle_offset, traffic, wavefronts
from cake.ir.layouts.vectors import ColumnsOf, RowsOf, named

__all__ = [
    "LANES",
    "REPLICATED",
    "SWIZZLES",
    "Accumulator",
    "ColumnsOf",
    "OperandA",
    "OperandB",
    "RegisterLayout",
    "Replicated",
    "RowsOf",
    "TensorRows",
    "Traffic",
    "Vector",
    "depth",
    "least_wavefronts",
    "named",
    "swizzle_offset",
    "traffic",
    "wavefronts",
]
