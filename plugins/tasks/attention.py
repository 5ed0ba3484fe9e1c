"""Attention forward in bf16, head dimension 128: o = softmax(q k^T / sqrt(128)) v, heads side by side

B counts the heads of all sequences of a batch, S its positions. torch serves it as
`torch.nn.functional.scaled_dot_product_attention`, cuDNN and FlashAttention as their forward passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from cake.ir.types import DType
from cake.kinds.task import Array, Task, Tensor, Tolerance

BF16 = DType.bf16.numpy
NAMES = ("q", "k", "v")


class Attention(Task):
    tensors: ClassVar[Mapping[str, Tensor]] = {
        **{name: Tensor("bf16", ("B", "S", "D")) for name in NAMES},
        "o": Tensor("bf16", ("B", "S", "D"), output=True),
    }
    shapes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "long": {"B": 32, "S": 8192, "D": 128},
        "tails": {"B": 2, "S": 600, "D": 128},
        "small": {"B": 3, "S": 70, "D": 128},
    }
    kernels: ClassVar[Mapping[str, str]] = {"sm_90a": "plugins/kernels/attention_sm90a.cake"}

    def inputs(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
        shape = (dims["B"], dims["S"], dims["D"])
        return {name: rng.standard_normal(shape, dtype=np.float32).astype(BF16) for name in NAMES}

    def hostile(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, dict[str, Array]]:
        found = self.inputs(dims, rng)
        sharp = {**found, "q": (found["q"].astype(np.float32) * 12).astype(BF16)}
        flat = {**found, "k": np.zeros_like(found["k"])}
        rising = found["k"].astype(np.float32) + np.linspace(0, 3, dims["S"], dtype=np.float32)[None, :, None]
        special = found["v"].copy()
        special[0, -1, 0], special[-1, 0, -1] = np.inf, np.nan
        return {
            "sharp": sharp,
            "flat": flat,
            "rising": {**found, "k": rising.astype(BF16)},
            "special": {**found, "v": special},
        }

    def oracle(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        q, k, v = (inputs[name].astype(np.float64) for name in NAMES)
        with np.errstate(invalid="ignore"):
            s = q @ k.transpose(0, 2, 1) / np.sqrt(dims["D"])
            p = np.exp(s - s.max(axis=2, keepdims=True))
            return {"o": (p @ v) / p.sum(axis=2, keepdims=True)}

    def tolerance(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Tolerance]:
        q, k, v = (inputs[name].astype(np.float64) for name in NAMES)
        largest = float(np.max(np.abs(v), initial=0.0, where=np.isfinite(v)))
        norms = [float(np.max(np.sqrt(np.sum(x * x, axis=2)), initial=0.0)) for x in (q, k)]
        score = norms[0] * norms[1] / np.sqrt(dims["D"])
        # A score is off by the accumulation of D products; its power by that and by the exponent's rounding.
        power = 1.25 * dims["D"] * 2.0**-24 * score + 4 * 2.0**-24 * 1.4427 * score + 2.0**-21
        absolute = largest * (2.0**-8 + 2 * power + dims["S"] * 2.0**-23)
        derivation = (
            "bf16 rounds the result to 2^-8 of itself, and each weight to 2^-9 of itself before it meets v, "
            f"whose largest is {largest:.4g}; weights are off by the error of their scores, at most "
            f"{score:.4g} in size: D products in f32, and three roundings of the exponent; sums of S weights "
            "and products in f32 by S 2^-24 each"
        )
        return {"o": Tolerance(absolute, 2.0**-8, derivation)}

    def flops(self, dims: Mapping[str, int]) -> float:
        return 4.0 * dims["B"] * dims["S"] ** 2 * dims["D"]
