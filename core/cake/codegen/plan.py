"""LaunchPlan: what a host needs to launch one generated kernel, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class PointerParam:
    """The device address of a tensor."""

    tensor: str

    def to_json(self) -> dict[str, Any]:
        return {"kind": "pointer", "tensor": self.tensor}


@dataclass(frozen=True, slots=True)
class TensorMapParam:
    """A tensor map by value: `box` in elements, outermost axis first; `swizzle` in bytes."""

    tensor: str
    box: tuple[int, ...]
    swizzle: int

    def to_json(self) -> dict[str, Any]:
        return {"kind": "tensor_map", "tensor": self.tensor, "box": list(self.box), "swizzle": self.swizzle}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A contiguous row-major tensor."""

    dtype: str
    shape: tuple[int, ...]
    access: Literal["in", "out"]

    def to_json(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": list(self.shape), "access": self.access}


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Entry point, launch shape and arguments in order."""

    entry: str
    arch: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_shared_bytes: int
    params: tuple[PointerParam | TensorMapParam, ...]
    tensors: Mapping[str, TensorSpec]

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON-able data."""
        return {
            "schema": SCHEMA,
            "entry": self.entry,
            "arch": self.arch,
            "grid": list(self.grid),
            "block": list(self.block),
            "cluster": list(self.cluster),
            "dynamic_shared_bytes": self.dynamic_shared_bytes,
            "params": [param.to_json() for param in self.params],
            "tensors": {name: spec.to_json() for name, spec in self.tensors.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LaunchPlan:
        """The plan that `to_json` wrote. ValueError for another schema."""
        if data.get("schema") != SCHEMA:
            raise ValueError(f"launch plan of schema {data.get('schema')!r}, this cake reads {SCHEMA}")
        return cls(
            entry=data["entry"],
            arch=data["arch"],
            grid=_triple(data["grid"]),
            block=_triple(data["block"]),
            cluster=_triple(data["cluster"]),
            dynamic_shared_bytes=data["dynamic_shared_bytes"],
            params=tuple(_param(param) for param in data["params"]),
            tensors={
                name: TensorSpec(t["dtype"], tuple(t["shape"]), t["access"])
                for name, t in data["tensors"].items()
            },
        )


def _triple(values: list[int]) -> tuple[int, int, int]:
    x, y, z = values
    return x, y, z


def _param(data: Mapping[str, Any]) -> PointerParam | TensorMapParam:
    if data["kind"] == "pointer":
        return PointerParam(data["tensor"])
    return TensorMapParam(data["tensor"], tuple(data["box"]), data["swizzle"])
