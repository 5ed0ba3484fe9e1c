"""Attention forward over sequences of different lengths, padded side by side

As `attention`, but only the first lengths[b] keys of head b count, and rows from lengths[b] on are zero. A
length of 0 is a sequence without positions. torch serves it with a mask, FlashAttention as its varlen
interface.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from cake.ir.types import DType
from cake.kinds.task import Array, Task, Tensor, Tolerance

BF16 = DType.bf16.numpy
NAMES = ("q", "k", "v")


class AttentionVarlen(Task):
    tensors: ClassVar[Mapping[str, Tensor]] = {
        **{name: Tensor("bf16", ("B", "S", "D")) for name in NAMES},
        "lengths": Tensor("i32", ("B",)),
        "o": Tensor("bf16", ("B", "S", "D"), output=True),
    }
    shapes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "long": {"B": 32, "S": 4096, "D": 128},
        "tails": {"B": 3, "S": 600, "D": 128},
        "small": {"B": 4, "S": 70, "D": 128},
    }
    kernels: ClassVar[Mapping[str, str]] = {"sm_90a": "plugins/kernels/attention_varlen_sm90a.cake"}

    def inputs(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
        shape = (dims["B"], dims["S"], dims["D"])
        found = {name: rng.standard_normal(shape, dtype=np.float32).astype(BF16) for name in NAMES}
        return {**found, "lengths": rng.integers(0, dims["S"] + 1, dims["B"]).astype(np.int32)}

    def hostile(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, dict[str, Array]]:
        found = self.inputs(dims, rng)
        count, most = dims["B"], dims["S"]
        empty = np.zeros(count, np.int32)
        steps = np.array([0, 1, min(64, most), most], np.int32)[np.arange(count) % 4]
        return {
            "empty": {**found, "lengths": empty},
            "whole": {**found, "lengths": np.full(count, most, np.int32)},
            "steps": {**found, "lengths": steps},
            "rubbish behind the end": {**found, "k": _rubbish(found["k"], steps), "lengths": steps},
        }

    def oracle(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        q, k, v = (inputs[name].astype(np.float64) for name in NAMES)
        out = np.zeros_like(q)
        for b, n in enumerate(inputs["lengths"]):
            if n:
                s = q[b, :n] @ k[b, :n].T / np.sqrt(dims["D"])
                p = np.exp(s - s.max(axis=1, keepdims=True))
                out[b, :n] = (p @ v[b, :n]) / p.sum(axis=1, keepdims=True)
        return {"o": out}

    def tolerance(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Tolerance]:
        q, k, v = (np.nan_to_num(inputs[name].astype(np.float64), posinf=0, neginf=0) for name in NAMES)
        largest = float(np.max(np.abs(v), initial=0.0))
        norms = [float(np.max(np.sqrt(np.sum(x * x, axis=2)), initial=0.0)) for x in (q, k)]
        score = norms[0] * norms[1] / np.sqrt(dims["D"])
        power = 1.25 * dims["D"] * 2.0**-24 * score + 4 * 2.0**-24 * 1.4427 * score + 2.0**-21
        absolute = largest * (2.0**-8 + 2 * power + dims["S"] * 2.0**-23)
        derivation = (
            "as of `attention`: bf16 rounds the result to 2^-8 and each weight to 2^-9 of itself, weights "
            f"are off by the error of scores of at most {score:.4g}, sums of S weights in f32 by S 2^-24"
        )
        return {"o": Tolerance(absolute, 2.0**-8, derivation)}

    def flops(self, dims: Mapping[str, int]) -> float:
        return 4.0 * dims["B"] * dims["S"] ** 2 * dims["D"]


def _rubbish(k: Array, lengths: Array) -> Array:
    """Keys that are huge behind the end of each sequence."""
    out = k.copy()
    out[np.arange(k.shape[1])[None, :] >= lengths[:, None]] = 100
    return out
