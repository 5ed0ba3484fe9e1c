"""What a candidate computes on the machine, against the task's oracle: small instances, whole grids."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np

from cake.device.compare import compare
from cake.diagnostics import KernelErrors
from cake.evaluate.evaluator import Target
from cake.ir import Instance, Kernel, instantiate
from cake.kinds.primitive import Primitive
from cake.kinds.task import Array, Task
from cake.machine.engine import run
from cake.plugins import Registry
from cake.verify import check
from cake.verify.contract import repair
from cake.verify.instances import granules_of

SIZES = (264, 136, 72, 8, 3)
"""What an axis may shrink to, largest first: most are 8 beyond a power of two: a tail of any tile."""

RANDOM_BLOCKS, HOSTILE_BLOCKS = 8, 3
"""CTAs at most. Whole grids are run, so that an output that no CTA writes is found."""


class Fall(Exception):
    """A candidate fails for a reason that is no diagnostic of the compiler: it computes something else."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


def check_values(kernel: Kernel, registry: Registry, task: Task, target: Target, arch: str) -> int:
    """Run the kernel on the task's random inputs, and on its hostile ones at a smaller instance.

    The number of runs that agreed: 0 where the contract admits no small instance. Raises Fall at the first
    that does not agree, KernelErrors where the machine finds a fault on the way.
    """
    runs = 0
    instance = small_instance(kernel, registry.primitives, target.dims, RANDOM_BLOCKS, arch)
    if instance is not None:
        _check_run(
            instance, registry, task, "random", task.inputs(instance.dims, np.random.default_rng(target.seed))
        )
        runs += 1
    instance = small_instance(kernel, registry.primitives, target.dims, HOSTILE_BLOCKS, arch)
    if instance is not None:
        for name, inputs in task.hostile(instance.dims, np.random.default_rng(target.seed)).items():
            _check_run(instance, registry, task, name, inputs)
            runs += 1
    return runs


def small_instance(
    kernel: Kernel, primitives: Mapping[str, Primitive], target: Mapping[str, int], blocks: int, arch: str
) -> Instance | None:
    """The largest instance of at most `blocks` CTAs within the contract, no axis beyond the target's."""
    values = {c.name: c.default for c in kernel.constants}
    granules = granules_of(kernel, values)
    choices = [[size for size in SIZES if size < target[name]] or [target[name]] for name in kernel.dims]
    tried: dict[tuple[int, ...], None] = {}
    for sizes in product(*choices):
        # A contract may fix an axis (D == 128) or ask for multiples.
        near = repair(kernel, values, granules, dict(zip(kernel.dims, sizes, strict=True)))
        if near is not None and all(near[name] <= target[name] for name in kernel.dims):
            tried[tuple(near[name] for name in kernel.dims)] = None
    for shrunk in sorted(tried, key=lambda s: (-int(np.prod(s, dtype=np.int64)), s)):
        dims = dict(zip(kernel.dims, shrunk, strict=True))
        try:
            instance = instantiate(kernel, dims, primitives=primitives, arch=arch)
        except KernelErrors:
            continue  # outside the contract
        if instance.blocks <= blocks:
            return instance
    return None


def _check_run(
    instance: Instance, registry: Registry, task: Task, name: str, inputs: dict[str, Array]
) -> None:
    result = run(instance, inputs=inputs)
    if result.facts.findings:
        # Told in full by the verifier: this shape has shown what its own choice of shapes did not.
        report = check(instance.kernel, registry, dims=instance.dims, arch=instance.arch)
        raise KernelErrors(report.diagnostics, instance.kernel.source)
    where = f"on {name} inputs at {instance.title}"
    wanted = task.oracle(inputs, instance.dims)
    tolerances = task.tolerance(inputs, instance.dims)
    for output, want in wanted.items():
        if output not in result.outputs or not result.written[output].all():
            missing = want.size - int(np.count_nonzero(result.written.get(output, False)))
            raise Fall(
                "num/unwritten-output",
                f"{missing} of {want.size} elements of {output} are not written {where}",
            )
        tolerance = tolerances[output]
        found = compare(result.outputs[output], want, tolerance.absolute, tolerance.relative)
        if not found.ok:
            raise Fall(
                "num/wrong-values",
                f"{found.mismatched} of {found.elements} elements of {output} are wrong {where}: "
                f"{found.got:.6g} in place of {found.want:.6g} at {list(found.where)}",
            )
