"""Values of buffers while a kernel runs on the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cake.ir.instance import Instance
from cake.machine import effects as fx
from cake.machine.overlays import fresh_shared, places_of

Array = np.ndarray[Any, Any]


class Memory:
    """Values of buffers: numpy arrays of their dtypes. Implements kinds.primitive.Memory."""

    def __init__(self, instance: Instance, inputs: Mapping[str, Array]) -> None:
        self.arrays: dict[str, Array] = {}
        self.written: dict[str, Array] = {}
        for name, buffer in instance.buffers.items():
            if buffer.space == "global" and not buffer.output:
                self.arrays[name] = np.ascontiguousarray(inputs[name], dtype=buffer.dtype.numpy)
                if self.arrays[name].shape != buffer.shape:
                    raise ValueError(
                        f"input {name} has shape {self.arrays[name].shape}, expected {buffer.shape}"
                    )
            elif buffer.output:
                self.arrays[name] = np.zeros(buffer.shape, buffer.dtype.numpy)
                self.written[name] = np.zeros(buffer.shape, bool)
        self.instance = instance
        self.cta = 0
        """Rank of the CTA that executes."""
        self.places = places_of(instance)
        self.shared: list[dict[str, Array]] = []
        self.fresh()

    def fresh(self) -> None:
        """Shared memory of a new cluster, per CTA: poison that shows wherever it leaks."""
        self.shared = [fresh_shared(self.instance) for _ in range(self.instance.cluster)]

    def array(self, region: fx.Region) -> Array:
        """The whole buffer that `region` lies in; a copy where it shares its bytes with others."""
        places = self.places.get(region.buffer.name)
        return self.storage(region) if places is None else self.storage(region)[places]

    def storage(self, region: fx.Region) -> Array:
        """What holds the buffer of `region`: its array, or a flat one in which `places` finds elements."""
        if region.buffer.space != "global":
            return self.shared[region.cta if region.cta >= 0 else self.cta][region.buffer.name]
        return self.arrays[region.buffer.name]

    def read(self, region: fx.Region, fill: float = 0.0) -> Array:
        """The window's values, `fill` outside the buffer; shape `region.size`."""
        array = self.array(region)
        if region.inside:
            return array[tuple(slice(a, a + s) for a, s in zip(region.start, region.size, strict=True))]
        out = np.full(region.size, fill, array.dtype)
        box = region.box
        if all(n for _, n in box):
            into = tuple(
                slice(a - start, a - start + n) for (a, n), start in zip(box, region.start, strict=True)
            )
            out[into] = array[tuple(slice(a, a + n) for a, n in box)]
        return out

    def write(self, region: fx.Region, data: Array) -> None:
        """Store `data` (shape `region.size`) into the window; what lies outside is dropped."""
        self.store(region, data)

    def store(self, region: fx.Region, data: Array) -> None:
        """Store `data` (shape `region.size`) into the window; what lies outside is dropped."""
        box = region.box
        if not all(n for _, n in box):
            return
        name = region.buffer.name
        target = tuple(slice(a, a + n) for a, n in box)
        source = tuple(
            slice(a - start, a - start + n) for (a, n), start in zip(box, region.start, strict=True)
        )
        places = self.places.get(name)
        self.storage(region)[target if places is None else places[target]] = np.asarray(data).reshape(
            region.size
        )[source]
        if name in self.written:
            self.written[name][target] = True
