"""Matrix product of two bf16 matrices, the second transposed: c = a @ b.T

The linear layer of neural networks, weights stored as rows of outputs. cuBLAS serves it as `gemmEx`, torch as
`torch.nn.functional.linear`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from cake.ir.types import DType
from cake.kinds.task import Array, Task, Tensor, Tolerance

BF16 = DType.bf16.numpy
SAMPLED = 48
"""Rows and columns whose partial sums the tolerance looks at."""


class Gemm(Task):
    tensors: ClassVar[Mapping[str, Tensor]] = {
        "a": Tensor("bf16", ("M", "K")),
        "b": Tensor("bf16", ("N", "K")),
        "c": Tensor("bf16", ("M", "N"), output=True),
    }
    shapes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "square4096": {"M": 4096, "N": 4096, "K": 4096},
        "tails": {"M": 4095, "N": 1000, "K": 776},
        "square2048": {"M": 2048, "N": 2048, "K": 2048},
        "square8192": {"M": 8192, "N": 8192, "K": 8192},
        "skinny": {"M": 64, "N": 8192, "K": 8192},
    }
    kernels: ClassVar[Mapping[str, str]] = {
        "sm_80": "plugins/kernels/gemm_sm80.cake",
        "sm_90a": "plugins/kernels/gemm_sm90a.cake",
    }

    def inputs(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
        return {
            name: rng.standard_normal((dims[rows], dims["K"]), dtype=np.float32).astype(BF16)
            for name, rows in (("a", "M"), ("b", "N"))
        }

    def hostile(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, dict[str, Array]]:
        half = dims["K"] // 2
        cancelling = self.inputs(dims, rng)
        cancelling["a"][:, half : 2 * half] = cancelling["a"][:, :half]
        cancelling["b"][:, half : 2 * half] = -cancelling["b"][:, :half]
        drifting = {
            name: (x.astype(np.float32) + 4).astype(BF16) for name, x in self.inputs(dims, rng).items()
        }
        infinite = self.inputs(dims, rng)
        infinite["a"][-1, -1] = np.inf
        infinite["b"][0, 0] = -np.inf
        ones = {name: np.ones_like(x) for name, x in infinite.items()}
        return {"cancelling": cancelling, "drifting": drifting, "infinite": infinite, "ones": ones}

    def oracle(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        with np.errstate(invalid="ignore"):
            return {"c": inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64).T}

    def tolerance(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Tolerance]:
        largest = _largest_partial_sum(inputs["a"], inputs["b"])
        absolute = 1.25 * dims["K"] * 2.0**-24 * 2 * largest
        derivation = (
            "bf16 rounds the result to 2^-8 of itself. Products of bf16 are exact in f32. Tensor cores cut "
            "each of K products at 2^-24 of the largest addend (one guard bit) and each sum of 8 of them at "
            "2^-23: 1.25 K 2^-24 of the largest partial sum, taken as twice the largest one of sampled "
            f"elements, {largest:.4g}"
        )
        return {"c": Tolerance(absolute, 2.0**-8, derivation)}

    def flops(self, dims: Mapping[str, int]) -> float:
        return 2.0 * dims["M"] * dims["N"] * dims["K"]


def _largest_partial_sum(a: Array, b: Array) -> float:
    """The largest finite magnitude that running sums over k reach, over the largest rows of both."""
    left, right = (_largest_rows(x) for x in (a, b))
    running = np.zeros((len(left), len(right)))
    largest = 0.0
    with np.errstate(invalid="ignore"):
        for start in range(0, a.shape[1], 16):
            running = running + left[:, start : start + 16] @ right[:, start : start + 16].T
            largest = max(largest, float(np.max(np.abs(running), initial=0.0, where=np.isfinite(running))))
    return largest


def _largest_rows(x: Array) -> Array:
    norms = np.max(np.abs(x), axis=1).astype(np.float32)
    return x[np.argsort(-norms)[:SAMPLED]].astype(np.float64)
