"""Matrix product of two e4m3 matrices, the second transposed: c = a @ b.T in bf16

The linear layer of models in eight bits, scales folded in elsewhere. cuBLAS serves it as `cublasLtMatmul`,
torch as `torch._scaled_mm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from cake.ir.types import DType
from cake.kinds.task import Array, Task, Tensor, Tolerance

E4M3 = DType.e4m3.numpy


class GemmFp8(Task):
    tensors: ClassVar[Mapping[str, Tensor]] = {
        "a": Tensor("e4m3", ("M", "K")),
        "b": Tensor("e4m3", ("N", "K")),
        "c": Tensor("bf16", ("M", "N"), output=True),
    }
    shapes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "square4096": {"M": 4096, "N": 4096, "K": 4096},
        "tails": {"M": 1000, "N": 1000, "K": 784},
        "small": {"M": 70, "N": 72, "K": 48},
    }
    kernels: ClassVar[Mapping[str, str]] = {
        "sm_89": "plugins/kernels/gemm_fp8_sm89.cake",
        "sm_90a": "plugins/kernels/gemm_fp8_sm90a.cake",
    }

    def inputs(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
        return {
            name: rng.standard_normal((dims[rows], dims["K"]), dtype=np.float32).astype(E4M3)
            for name, rows in (("a", "M"), ("b", "N"))
        }

    def hostile(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, dict[str, Array]]:
        found = self.inputs(dims, rng)
        special = found["a"].copy()
        special[-1, -1] = np.nan
        return {
            "ones": {name: np.ones_like(x) for name, x in found.items()},
            "largest": {**found, "a": np.full_like(found["a"], 448)},
            "special": {**found, "a": special},
        }

    def oracle(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        with np.errstate(invalid="ignore"):
            return {"c": inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64).T}

    def tolerance(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Tolerance]:
        rows = [float(np.max(np.nansum(x.astype(np.float64) ** 2, axis=1))) for x in inputs.values()]
        largest = float(np.sqrt(rows[0] * rows[1]))
        absolute = (dims["K"] / 32 + 1) * 2.0**-13 * largest
        derivation = (
            "bf16 rounds the result to 2^-8 of itself. Tensor cores before Blackwell add the 32 products of "
            "an eight-bit instruction to the accumulator with 14 bits below the largest addend, at most the "
            f"product of the longest rows, {largest:.4g}: 2^-13 of it for each instruction"
        )
        return {"c": Tolerance(absolute, 2.0**-8, derivation)}

    def flops(self, dims: Mapping[str, int]) -> float:
        return 2.0 * dims["M"] * dims["N"] * dims["K"]
