"""Task: an operator to evolve kernels for (plugins/tasks/NAME.py): inputs, oracle, tolerance, shapes.

The fields are those users ask with: operator, shapes, dtypes, layouts, target, baseline.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the operator: dtype and symbolic shape (names of dims), contiguous row-major."""

    dtype: str
    shape: tuple[str, ...]
    output: bool = False


@dataclass(frozen=True, slots=True)
class Tolerance:
    """|got - want| <= absolute + relative * |want|, elementwise; `derivation` says why these numbers."""

    absolute: float
    relative: float
    derivation: str


class Task(ABC):
    """One operator."""

    tensors: ClassVar[Mapping[str, Tensor]]
    shapes: ClassVar[Mapping[str, Mapping[str, int]]]
    """Named shapes; the first is evolved by default."""
    kernels: ClassVar[Mapping[str, str]]
    """Starting kernel per architecture: path relative to the workspace."""

    @classmethod
    def name(cls) -> str:
        """The task's name on the command line, its file's: `OddSum` -> `odd_sum`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @abstractmethod
    def inputs(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
        """Fresh random inputs in the tensors' dtypes."""

    def hostile(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, dict[str, Array]]:
        """Named inputs meant to break kernels (infinities, constant rows, cancellation)."""
        return {}

    @abstractmethod
    def oracle(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        """The outputs in float64."""

    @abstractmethod
    def tolerance(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Tolerance]:
        """Per output, derived from dtypes, reduction length and accumulation."""

    @abstractmethod
    def flops(self, dims: Mapping[str, int]) -> float:
        """Floating-point operations the operator needs."""

    def bytes(self, dims: Mapping[str, int]) -> float:
        """Bytes the operator must move: each tensor once."""
        from cake.ir.types import DType

        total = 0
        for tensor in self.tensors.values():
            count = 1
            for axis in tensor.shape:
                count *= dims[axis]
            total += count * DType(tensor.dtype).bytes
        return float(total)
