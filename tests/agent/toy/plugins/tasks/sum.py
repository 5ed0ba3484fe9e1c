"""Sum: a task whose kernels are lists of small numbers, judged by their sum in no time."""

from collections.abc import Mapping

import numpy as np

from cake.kinds.task import Array, Task, Tensor, Tolerance


class Sum(Task):
    tensors: Mapping[str, Tensor] = {}
    shapes: Mapping[str, Mapping[str, int]] = {"small": {"N": 8}, "large": {"N": 1024}}
    kernels: Mapping[str, str] = {"sm_80": "plugins/kernels/sum.cake"}

    def inputs(self, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
        return {}

    def oracle(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {}

    def tolerance(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Tolerance]:
        return {}

    def flops(self, dims: Mapping[str, int]) -> float:
        return 0.0
