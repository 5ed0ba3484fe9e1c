"""torch as the other arm of a measurement: the same operator on the same data, in the same process.

torch shares the GPU's primary context, so its tensors hold copies of the same inputs and its launches run
on our stream. Absent torch is no error: `available` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from cake.device.arrays import Array, bits
from cake.device.driver import DeviceFault


def available(task: str) -> bool:
    """Whether torch is installed, sees the GPU, and the operator of `task` is known here."""
    if task not in _OPERATORS or find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


class TorchArm:
    """torch's operator over one or more copies of the inputs, in turn.

    `inputs`: host arrays by name, as the task gives them. Raises DeviceFault where torch fails.
    """

    def __init__(self, task: str, inputs: Mapping[str, Array], copies: int, index: int = 0) -> None:
        import torch

        self.name = "torch"
        self._torch = torch
        self._device = torch.device("cuda", index)
        self._operator = _OPERATORS[task]
        try:
            self._copies = [
                {name: self._tensor(array) for name, array in inputs.items()} for _ in range(copies)
            ]
            self._outputs = [self._operator(torch, tensors) for tensors in self._copies]
            torch.cuda.synchronize(self._device)
        except RuntimeError as error:
            raise DeviceFault("device/torch", f"torch cannot run {task}: {error}") from error
        self._output = OUTPUTS[task]

    def prepare(self, count: int, stream: Any) -> Callable[[], None]:
        """A captured graph; results go round over as many outputs as there are copies."""
        torch = self._torch
        ours = torch.cuda.ExternalStream(int(stream), device=self._device)
        graph = torch.cuda.CUDAGraph()
        outputs = list(self._outputs)
        try:
            torch.cuda.synchronize(self._device)
            with torch.cuda.graph(graph):
                for index in range(count):
                    slot = index % len(self._copies)
                    outputs[slot] = self._operator(torch, self._copies[slot])
            torch.cuda.synchronize(self._device)
        except RuntimeError as error:
            raise DeviceFault("device/torch", f"torch cannot be captured: {error}") from error

        def replay() -> None:
            with torch.cuda.stream(ours):
                graph.replay()

        return replay

    def outputs(self) -> dict[str, Array]:
        """What torch computed from the first copy, as float64 under the task's name for it."""
        return {self._output: np.asarray(self._outputs[0].double().cpu().numpy())}

    def _tensor(self, array: Array) -> Any:
        torch = self._torch
        if array.dtype.name == "bfloat16":
            raw = torch.from_numpy(bits(array).view(np.int16).copy())
            return raw.view(torch.bfloat16).to(self._device)
        return torch.from_numpy(array.copy()).to(self._device)


Operator = Callable[[Any, Mapping[str, Any]], Any]
"""(torch, inputs by name) -> output."""


def _gemm(torch: Any, tensors: Mapping[str, Any]) -> Any:
    return torch.matmul(tensors["a"], tensors["b"].T)


def _softmax(torch: Any, tensors: Mapping[str, Any]) -> Any:
    return torch.softmax(tensors["x"], dim=-1)


def _rmsnorm(torch: Any, tensors: Mapping[str, Any]) -> Any:
    x, weight = tensors["x"], tensors["w"]
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight=weight, eps=1e-6)


_OPERATORS: dict[str, Operator] = {"gemm": _gemm, "softmax": _softmax, "rmsnorm": _rmsnorm}
"""By the names of tasks; a task that is not here is measured alone."""

OUTPUTS = {"gemm": "c", "softmax": "y", "rmsnorm": "y"}
"""What the tasks call the operator's result."""
