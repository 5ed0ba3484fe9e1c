"""Many schedules of one kernel instance, and whether they agree: the truth to try verdicts against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cake.ir.instance import Instance
from cake.machine.operational import Outcome, execute
from cake.machine.policies import policies

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Exploration:
    """The outcomes, one a schedule tried."""

    outcomes: tuple[Outcome, ...]

    def fault(self, expected: Mapping[str, Array] | None = None) -> str:
        """What is wrong with the kernel, in words; empty where every schedule ends, writes the same elements
        and gives the same values: `expected`, where given."""
        reference = self.outcomes[0]
        for outcome in self.outcomes:
            if outcome.ended != "done":
                return f"{outcome.policy}: {outcome.ended}"
            for name, array in outcome.outputs.items():
                want = reference.outputs[name] if expected is None else expected[name]
                if not np.array_equal(outcome.written[name], reference.written[name]):
                    return f"{outcome.policy}: other elements of {name} are written"
                if not same(array, want):
                    return f"{outcome.policy}: other values of {name}"
        return ""


def explore(
    instance: Instance,
    inputs: Mapping[str, Array],
    *,
    schedules: int = 10,
    seed: int = 0,
    blocks: range | None = None,
    expected: Mapping[str, Array] | None = None,
) -> Exploration:
    """Run CTAs `blocks` (all) under so many schedules; with `expected`, none after the first that differs.

    Deterministic by `seed`. Raises cake.ir.evaluate.EvaluationError where an index has no value.
    """
    chosen = blocks if blocks is not None else range(instance.blocks)
    found: list[Outcome] = []
    for policy in policies(instance, schedules, seed):
        found.append(execute(instance, inputs, policy, chosen))
        if expected is not None and Exploration((found[-1],)).fault(expected):
            break
    return Exploration(tuple(found))


def same(a: Array, b: Array) -> bool:
    """Bit for bit, but any NaN for any."""
    x, y = np.asarray(a), np.asarray(b)
    if x.dtype.kind not in "iub":
        x, y = x.astype(np.float64), y.astype(np.float64)
    return x.shape == y.shape and bool(np.array_equal(x, y, equal_nan=x.dtype.kind == "f"))
