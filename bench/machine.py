"""How long one CTA of a GEMM takes on the machine: facts alone, and facts with values, on one core.

    python bench/machine.py [--repeat N]

Prints milliseconds (the best of N runs) for 128 x 128 tiles and 8 k-tiles. Goal: facts under 100 ms, both
under 1 s.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np

from cake.ir import Instance, instantiate, parse
from cake.machine.engine import run
from cake.plugins import Registry, load

ROOT = Path(__file__).resolve().parent.parent
CASES = (("gemm_sm80", {"BK": 32}), ("gemm_sm80", {"BK": 64}), ("gemm_sm90a", {}))
K_TILES = 8


def instance_of(registry: Registry, name: str, constants: dict[str, int]) -> Instance:
    kernel = parse((ROOT / "plugins" / "kernels" / f"{name}.cake").read_text(), name)
    depth = constants.get("BK", kernel.constant("BK").default)
    dims = {"M": 128, "N": 128, "K": K_TILES * int(depth)}
    return instantiate(kernel, dims, constants, primitives=registry.primitives)


def best(work: Callable[[], object], repeat: int) -> float:
    """Milliseconds of the fastest of `repeat` executions."""
    times = []
    for _ in range(repeat):
        began = perf_counter()
        work()
        times.append(perf_counter() - began)
    return 1e3 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time one GEMM CTA on the machine.")
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    registry = load(ROOT)
    rng = np.random.default_rng(0)
    for name, constants in CASES:
        instance = instance_of(registry, name, constants)
        inputs = {
            b.name: rng.standard_normal(b.shape).astype(b.dtype.numpy)
            for b in instance.buffers.values()
            if b.space == "global" and not b.output
        }
        facts = best(partial(run, instance, blocks=[0]), repeat)
        both = best(partial(run, instance, inputs=inputs, blocks=[0]), repeat)
        print(f"{instance.title}: facts {facts:.0f} ms, facts and values {both:.0f} ms")


if __name__ == "__main__":
    main()
