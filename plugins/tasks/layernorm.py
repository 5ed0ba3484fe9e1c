"""Layer normalization in bf16: y = (x - mean(x)) / sqrt(var(x) + eps) * w + b along each row

torch serves it as `torch.nn.functional.layer_norm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from cake.ir.types import DType
from cake.kinds.task import Array, Task, Tensor, Tolerance

BF16 = DType.bf16.numpy
EPS = 1e-5


class Layernorm(Task):
    tensors: ClassVar[Mapping[str, Tensor]] = {
        "x": Tensor("bf16", ("M", "N")),
        "w": Tensor("bf16", ("N",)),
        "b": Tensor("bf16", ("N",)),
        "y": Tensor("bf16", ("M", "N"), output=True),
    }
    shapes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "square8192": {"M": 8192, "N": 8192},
        "tails": {"M": 1000, "N": 1000},
        "wide": {"M": 256, "N": 16384},
    }
    kernels: ClassVar[Mapping[str, str]] = {"sm_80": "plugins/kernels/layernorm.cake"}

    def inputs(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
        n = dims["N"]
        return {
            "x": rng.standard_normal((dims["M"], n), dtype=np.float32).astype(BF16),
            "w": (1 + 0.1 * rng.standard_normal(n, dtype=np.float32)).astype(BF16),
            "b": (0.1 * rng.standard_normal(n, dtype=np.float32)).astype(BF16),
        }

    def hostile(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, dict[str, Array]]:
        found = self.inputs(dims, rng)
        x = found["x"]
        outlier = x.copy()
        outlier[:, -1] = 1000
        special = x.copy()
        special[0, -1], special[-1, 0] = np.inf, np.nan
        sets = {
            "zero": np.zeros_like(x),
            "constant": np.full_like(x, 3),
            "far": (x.astype(np.float32) + 64).astype(BF16),
            "outlier": outlier,
            "special": special,
        }
        return {name: {**found, "x": value} for name, value in sets.items()}

    def oracle(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        x = inputs["x"].astype(np.float64)
        with np.errstate(invalid="ignore"):
            d = x - x.mean(axis=1, keepdims=True)
            y = d / np.sqrt((d * d).mean(axis=1, keepdims=True) + EPS)
            return {"y": y * inputs["w"].astype(np.float64) + inputs["b"].astype(np.float64)}

    def tolerance(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Tolerance]:
        x = np.where(np.isfinite(inputs["x"]), inputs["x"], 0).astype(np.float64)
        d = x - x.mean(axis=1, keepdims=True)
        spread = float(np.min(np.sqrt((d * d).mean(axis=1) + EPS)))
        largest = float(np.max(np.abs(x), initial=0.0))
        weight = float(np.max(np.abs(inputs["w"].astype(np.float64)), initial=0.0))
        # The mean is off by its own rounding, which a narrow row magnifies.
        mean = (dims["N"] * 2.0**-24 + 2.0**-22) * largest / spread * weight
        relative = 2.0**-8 + dims["N"] * 2.0**-24 + 2.0**-18
        absolute = (
            mean + 2.0**-7 * float(np.max(np.abs(inputs["b"].astype(np.float64)), initial=0.0)) + 2.0**-60
        )
        derivation = (
            "bf16 rounds the result to 2^-8 of itself. A mean of N numbers in f32, in any order, is off by "
            f"N 2^-24 of the largest, {largest:.4g}, which the narrowest row's deviation, {spread:.4g}, and "
            "the largest weight scale; the variance and its root by N 2^-25 and 2^-20 of themselves; where "
            "the bias cancels, the rounding of the scaled part stays: 2^-7 of the largest bias"
        )
        return {"y": Tolerance(absolute, relative, derivation)}

    def flops(self, dims: Mapping[str, int]) -> float:
        return 8.0 * dims["M"] * dims["N"]
