"""Assignment step of k-means: for each point the nearest centroid, the lowest of several

label[n] = argmin over k of csq[k] - 2 x[n] . c[k], which is the squared distance less the point's own norm.
Points and centroids are small whole numbers here, so that every score is exact in f32 and a label is right or
wrong. Peers: flash-kmeans, cuVS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from cake.ir.types import DType
from cake.kinds.task import Array, Task, Tensor, Tolerance

BF16 = DType.bf16.numpy
LARGEST = 8
"""Of a coordinate: scores of D <= 512 stay below 2^17, exact in f32."""


class KmeansAssign(Task):
    tensors: ClassVar[Mapping[str, Tensor]] = {
        "x": Tensor("bf16", ("N", "D")),
        "c": Tensor("bf16", ("K", "D")),
        "csq": Tensor("f32", ("K",)),
        "label": Tensor("i32", ("N",), output=True),
    }
    shapes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "million": {"N": 1048576, "D": 128, "K": 1024},
        "tails": {"N": 1000, "D": 128, "K": 200},
        "small": {"N": 130, "D": 64, "K": 5},
    }
    kernels: ClassVar[Mapping[str, str]] = {"sm_90a": "plugins/kernels/kmeans_assign_sm90a.cake"}

    def inputs(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
        x = rng.integers(-LARGEST, LARGEST + 1, (dims["N"], dims["D"])).astype(BF16)
        c = rng.integers(-LARGEST, LARGEST + 1, (dims["K"], dims["D"])).astype(BF16)
        return _posed(x, c)

    def hostile(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, dict[str, Array]]:
        found = self.inputs(dims, rng)
        x, c = found["x"], found["c"]
        twins = c.copy()
        twins[1::2] = twins[: 2 * (len(c) // 2) : 2]
        last = c.copy()
        last[:-1] = LARGEST
        last[-1] = 0
        return {
            "ties": _posed(x, twins),
            "all the same": _posed(x, np.zeros_like(c)),
            "the last wins": _posed(np.zeros_like(x), last),
            "points are centroids": _posed(c[np.arange(len(x)) % len(c)], c),
        }

    def oracle(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        x, c = inputs["x"].astype(np.float64), inputs["c"].astype(np.float64)
        label = np.empty(len(x))
        for first in range(0, len(x), 4096):
            part = slice(first, first + 4096)
            label[part] = np.argmin(inputs["csq"].astype(np.float64) - 2 * (x[part] @ c.T), axis=1)
        return {"label": label}

    def tolerance(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Tolerance]:
        derivation = (
            "products and sums of whole numbers below 2^24 are exact in f32: a label is right or wrong"
        )
        return {"label": Tolerance(0.0, 0.0, derivation)}

    def flops(self, dims: Mapping[str, int]) -> float:
        return 2.0 * dims["N"] * dims["K"] * dims["D"]


def _posed(x: Array, c: Array) -> dict[str, Array]:
    norms = np.sum(c.astype(np.float64) ** 2, axis=1)
    return {"x": x, "c": c, "csq": norms.astype(np.float32)}
