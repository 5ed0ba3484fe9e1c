"""Registries with other parameters, and instances of the golden kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cake.cost import Prediction, predict
from cake.ir import Instance, instantiate, parse
from cake.plugins import Registry


def scaled(registry: Registry, factors: Mapping[str, float]) -> Registry:
    """The registry with calibration keys multiplied; a factor of 0 takes the key away."""
    calibrations = {}
    for name, calibration in registry.calibrations.items():
        sets = {
            key: replace(value, value=value.value * factors.get(key, 1.0))
            for key, value in calibration.sets.items()
            if factors.get(key, 1.0)
        }
        calibrations[name] = replace(calibration, sets=sets)
    return replace(registry, calibrations=calibrations)


def golden(
    registry: Registry, name: str, dims: Mapping[str, int], constants: Mapping[str, int] | None = None
) -> Instance:
    text = registry.kernels[name].read_text(encoding="utf-8")
    return instantiate(parse(text, f"{name}.cake"), dims, constants, primitives=registry.primitives)


def predicted(
    registry: Registry, name: str, dims: Mapping[str, int], constants: Mapping[str, int] | None = None
) -> Prediction:
    return predict(golden(registry, name, dims, constants), registry)
