"""Types of CAKE IR on a kernel instance: dtypes, scalars, windows in memory, barriers and fragments."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import ml_dtypes
import numpy as np

from cake.ir.layouts import REPLICATED, RegisterLayout


class DType(Enum):
    """Element types. `value` is the name used in kernel text; `pred` is a condition."""

    bf16 = "bf16"
    f16 = "f16"
    f32 = "f32"
    i32 = "i32"
    u32 = "u32"
    pred = "pred"
    e4m3 = "e4m3"
    e5m2 = "e5m2"

    @property
    def bytes(self) -> int:
        return self.numpy.itemsize

    @property
    def numpy(self) -> np.dtype[Any]:
        return _NUMPY[self.value]

    @property
    def is_float(self) -> bool:
        return self not in (DType.i32, DType.u32, DType.pred)


_NUMPY: dict[str, np.dtype[Any]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32),
    "pred": np.dtype(np.bool_),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
DTYPES = frozenset(_NUMPY)
STORED = DTYPES - {"pred"}
"""dtypes of memory; conditions live in registers."""


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A number that every thread of the warp agrees on: index arithmetic, conditions, literals."""

    kind: Literal["int", "bool", "float"]


@dataclass(frozen=True, slots=True)
class TextType:
    """A quoted word."""


@dataclass(frozen=True, slots=True)
class DTypeType:
    """A dtype given as an operand."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named piece of memory: `shape` in elements, last axis contiguous; `offset` in bytes if shared. In
    tensor memory the last two axes are lanes and columns, and `offset` is the first 32-bit column."""

    name: str
    space: Literal["global", "shared", "tensor"]
    dtype: DType
    shape: tuple[int, ...]
    output: bool = False
    swizzle: int = 0
    offset: int = 0

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.bytes

    @property
    def columns(self) -> int:
        """32-bit columns of tensor memory that it takes, all stages together."""
        return int(np.prod(self.shape[:-2], dtype=np.int64)) * (self.shape[-1] * self.dtype.bytes // 4)


@dataclass(frozen=True, slots=True)
class RegionType:
    """A window of a buffer: `window` is its extent on every axis, `shape` leaves the indexed axes out.
    `remote`: it lies in the shared memory of a CTA of the cluster that is chosen at run time."""

    buffer: Buffer
    window: tuple[int, ...]
    shape: tuple[int, ...]
    remote: bool = False

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def bytes(self) -> int:
        return int(np.prod(self.window, dtype=np.int64)) * self.dtype.bytes


@dataclass(frozen=True, slots=True)
class BarrierType:
    """An array of `count` mbarriers completing a phase after `arrivals` arrivals; `indexed`: one of them;
    `remote`: that of a CTA of the cluster which is chosen at run time."""

    name: str
    count: int
    arrivals: int
    offset: int
    indexed: bool
    remote: bool = False


@dataclass(frozen=True, slots=True)
class FragmentType:
    """A tile in registers: who holds which element is `layout`."""

    dtype: DType
    shape: tuple[int, ...]
    layout: RegisterLayout = REPLICATED

    @property
    def registers(self) -> int:
        """Elements a thread holds."""
        return self.layout.elements(self.shape)


Type = ScalarType | TextType | DTypeType | RegionType | BarrierType | FragmentType

INT = ScalarType("int")
BOOL = ScalarType("bool")
FLOAT = ScalarType("float")


_SPACES = {"global": "global", "shared": "shared", "tensor": "tensor memory"}


def describe(kind: Type) -> str:
    """The type as an author would say it."""
    match kind:
        case ScalarType(kind=name):
            return {"int": "an integer", "bool": "a condition", "float": "a number"}[name]
        case TextType():
            return "a quoted word"
        case DTypeType(dtype=dtype):
            return f"the dtype {dtype.value}"
        case RegionType(buffer=buffer, shape=shape, remote=remote):
            extent = "x".join(map(str, shape)) or "scalar"
            where = " in another CTA" if remote else ""
            return f"a {extent} window of {_SPACES[buffer.space]} {buffer.name} ({buffer.dtype.value}){where}"
        case BarrierType(name=name, indexed=indexed, remote=remote):
            where = " of another CTA" if remote else ""
            return f"the mbarrier {name}{where}" if indexed else f"the mbarrier array {name}"
        case FragmentType(dtype=dtype, shape=shape, layout=layout):
            return f"a fragment [{', '.join([dtype.value, *map(str, shape)])}] in layout {layout.name}"
