"""RMSNorm in bf16 with weight: y = x / sqrt(mean(x * x) + 1e-6) * w along each row

The normalization of most language models; torch serves it as `torch.nn.functional.rms_norm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from cake.ir.types import DType
from cake.kinds.task import Array, Task, Tensor, Tolerance

BF16 = DType.bf16.numpy
EPS = 1e-6


class Rmsnorm(Task):
    tensors: ClassVar[Mapping[str, Tensor]] = {
        "x": Tensor("bf16", ("M", "N")),
        "w": Tensor("bf16", ("N",)),
        "y": Tensor("bf16", ("M", "N"), output=True),
    }
    shapes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "square8192": {"M": 8192, "N": 8192},
        "tails": {"M": 1000, "N": 1000},
        "long": {"M": 4096, "N": 16384},
        "wide": {"M": 256, "N": 65536},
        "narrow": {"M": 65536, "N": 64},
    }
    kernels: ClassVar[Mapping[str, str]] = {"sm_80": "plugins/kernels/rmsnorm.cake"}

    def inputs(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
        return {
            "x": rng.standard_normal((dims["M"], dims["N"]), dtype=np.float32).astype(BF16),
            "w": (1 + 0.1 * rng.standard_normal(dims["N"], dtype=np.float32)).astype(BF16),
        }

    def hostile(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, dict[str, Array]]:
        found = self.inputs(dims, rng)
        x, w = found["x"], found["w"]
        outlier = x.copy()
        outlier[:, -1] = 30000
        special = x.copy()
        special[0, -1], special[-1, 0] = np.inf, np.nan
        sets = {
            "zero": np.zeros_like(x),
            "small": (x.astype(np.float32) * 1e-4).astype(BF16),
            "large": (x.astype(np.float32) * 1e15).astype(BF16),
            "outlier": outlier,
            "special": special,
        }
        return {name: {"x": value, "w": w} for name, value in sets.items()}

    def oracle(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        y = inputs["x"].astype(np.float64)
        with np.errstate(invalid="ignore"):
            y *= 1 / np.sqrt(np.mean(y * y, axis=1, keepdims=True) + EPS)
            y *= inputs["w"].astype(np.float64)
        return {"y": y}

    def tolerance(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Tolerance]:
        relative = 2.0**-8 + dims["N"] * 2.0**-25 + 2.0**-20
        derivation = (
            "bf16 rounds the result to 2^-8 of itself; squares of bf16 are exact in f32, their sum in any"
            " order is off by at most N 2^-24, of which the root leaves half; mean, root and three "
            "products by 2^-20 together. What lies below the least normal f32, 2^-126, may come out as "
            "zero"
        )
        return {"y": Tolerance(2.0**-126, relative, derivation)}

    def flops(self, dims: Mapping[str, int]) -> float:
        return 4.0 * dims["M"] * dims["N"]
