"""Row softmax in bf16: y = exp(x - max(x)) / sum(exp(x - max(x))) along each row

Attention weights and class probabilities; torch serves it as `torch.softmax(x, dim=-1)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from cake.ir.types import DType
from cake.kinds.task import Array, Task, Tensor, Tolerance

BF16 = DType.bf16.numpy


class Softmax(Task):
    tensors: ClassVar[Mapping[str, Tensor]] = {
        "x": Tensor("bf16", ("M", "N")),
        "y": Tensor("bf16", ("M", "N"), output=True),
    }
    shapes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "square8192": {"M": 8192, "N": 8192},
        "tails": {"M": 1000, "N": 1000},
        "long": {"M": 4096, "N": 16384},
        "wide": {"M": 256, "N": 65536},
        "narrow": {"M": 65536, "N": 64},
    }
    kernels: ClassVar[Mapping[str, str]] = {"sm_80": "plugins/kernels/softmax.cake"}

    def inputs(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
        x = rng.standard_normal((dims["M"], dims["N"]), dtype=np.float32)
        return {"x": np.multiply(x, 3, out=x).astype(BF16)}

    def hostile(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, dict[str, Array]]:
        x = self.inputs(dims, rng)["x"]
        masked = x.copy()
        masked[:, 1::2] = -np.inf
        masked[0, :] = -np.inf
        special = x.copy()
        special[0, -1], special[-1, 0] = np.inf, np.nan
        rising = np.broadcast_to(np.linspace(-40, 40, dims["N"]), x.shape).astype(BF16)
        return {
            "ties": {"x": np.full_like(x, 7)},
            "huge": {"x": (x.astype(np.float32) * 1e37).astype(BF16)},
            "masked": {"x": masked},
            "special": {"x": special},
            "rising": {"x": rising},
        }

    def oracle(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        y = inputs["x"].astype(np.float64)
        with np.errstate(invalid="ignore"):
            y -= y.max(axis=1, keepdims=True)
            np.exp(y, out=y)
            y /= y.sum(axis=1, keepdims=True)
        return {"y": y}

    def tolerance(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Tolerance]:
        relative = 2.0**-8 + dims["N"] * 2.0**-24 + 2.0**-15
        derivation = (
            "bf16 rounds the result to 2^-8 of itself; a sum of N positive f32 numbers in any order is "
            "off by at most N 2^-24; the exponent, at most 126 in size, by 3 2^-24 of itself, which moves"
            " its power by 2^-15.9; the approximate power and quotient by 2 units of 2^-23 each. What "
            "lies below the least normal f32, 2^-126, may come out as zero"
        )
        return {"y": Tolerance(2.0**-126, relative, derivation)}

    def flops(self, dims: Mapping[str, int]) -> float:
        return 5.0 * dims["M"] * dims["N"]
