"""Calibrations, tasks and devices: literals, declared keys, oracles and limits."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from cake.conformance.support import Array, Named, demand
from cake.ir import instantiate, parse
from cake.ir.arch import ARCHS, canonical, claimed
from cake.ir.types import DType
from cake.kinds.calibration import Calibration
from cake.kinds.device import Device
from cake.kinds.task import Task
from cake.plugins import PluginRecord, Registry


def calibration_checks(
    registry: Registry, record: PluginRecord, it: Calibration, hidden: Sequence[Any]
) -> Iterator[Named]:
    yield "literals", partial(_literals_only, registry, record)
    yield "keys", partial(_calibration_keys, registry, record, it)
    for case in [*it.cases, *hidden]:
        yield case.name, partial(_predicts, registry, it, case, f"{record.path}: {case.name}")


def _literals_only(registry: Registry, record: PluginRecord) -> None:
    """Nothing is computed in a calibration: imports of the kind's types, and one expression of literals."""
    tree = ast.parse((registry.root / record.path).read_text(encoding="utf-8"))
    allowed = (
        ast.Call,
        ast.keyword,
        ast.Name,
        ast.Load,
        ast.Constant,
        ast.Tuple,
        ast.Dict,
        ast.UnaryOp,
        ast.USub,
    )
    for node in tree.body[1:]:
        if isinstance(node, ast.ImportFrom) and node.module in ("__future__", "cake.kinds.calibration"):
            continue
        demand(
            isinstance(node, ast.Assign), f"{record.path}:{node.lineno}: only CALIBRATION = ... stands here"
        )
        for part in ast.walk(node.value) if isinstance(node, ast.Assign) else ():
            line = getattr(part, "lineno", node.lineno)
            demand(isinstance(part, allowed), f"{record.path}:{line}: write a literal")


def _calibration_keys(registry: Registry, record: PluginRecord, it: Calibration) -> None:
    from cake.cost import KEYS

    declared = {key for thing in registry.primitives.values() for key in thing.uses} | set(KEYS)
    demand(it.device in registry.devices, f"{record.path}: no device is called {it.device}")
    for key, value in it.sets.items():
        demand(key in declared, f"{record.path}: nothing declares {key}: no primitive `uses` it")
        demand(value.spread >= 0 and value.n >= 0, f"{record.path}: {key}: negative spread or count")
        if it.provenance.source == "measured":
            demand(value.n > 0, f"{record.path}: {key}: measured, but from no samples")
        for name, other in registry.calibrations.items():
            twice = other is not it and other.device == it.device and key in other.sets
            demand(not twice, f"{record.path}: {key} is set by {name} too")


def _predicts(registry: Registry, it: Calibration, case: Any, where: str) -> None:
    from cake.cost import predict

    path = registry.root / case.kernel
    kernel = parse(path.read_text(encoding="utf-8"), str(path))
    instance = instantiate(kernel, case.dims, primitives=registry.primitives)
    micros = 1e6 * predict(instance, registry, it.device).seconds
    error = abs(micros - case.micros) / case.micros
    demand(error <= case.within, f"{where}: predicts {micros:.2f} us, measured {case.micros:.2f} us")


def task_checks(registry: Registry, record: PluginRecord, it: Task, hidden: Sequence[Any]) -> Iterator[Named]:
    yield "kernels", partial(_task_kernels, registry, record, it)
    yield "oracle", partial(_task_oracle, record, it)


def _task_kernels(registry: Registry, record: PluginRecord, it: Task) -> None:
    demand(bool(it.kernels), f"{record.path}: no starting kernel")
    for arch, relative in it.kernels.items():
        path = registry.root / relative
        demand(path.is_file(), f"{record.path}: the kernel {relative} does not exist")
        kernel = parse(path.read_text(encoding="utf-8"), relative)
        demand(canonical(arch) in claimed(canonical(kernel.arch)), f"{relative} does not run on {arch}")
        names = {param.name: param.output for param in kernel.params}
        wanted = {name: tensor.output for name, tensor in it.tensors.items()}
        demand(names == wanted, f"{relative}: tensors {names}, the task has {wanted}")


_SMALL = 48


def _task_oracle(record: PluginRecord, it: Task) -> None:
    """On a small shape: inputs as declared, float64 outputs, positive tolerances and work."""
    demand(bool(it.shapes), f"{record.path}: no named shape")
    dims = {name: min(value, _SMALL) for name, value in next(iter(it.shapes.values())).items()}
    rng = np.random.default_rng(0)
    inputs = it.inputs(dims, rng)
    for label, arrays in {"inputs": inputs, **it.hostile(dims, rng)}.items():
        _task_arrays(f"{record.path}: {label}", it, dims, arrays, output=False)
    outputs = it.oracle(inputs, dims)
    _task_arrays(f"{record.path}: oracle", it, dims, outputs, output=True)
    for name, tolerance in it.tolerance(inputs, dims).items():
        demand(tolerance.absolute >= 0 and tolerance.relative >= 0, f"{record.path}: tolerance of {name}")
        demand(
            bool(tolerance.derivation.strip()), f"{record.path}: the tolerance of {name} has no derivation"
        )
    demand(set(it.tolerance(inputs, dims)) == set(outputs), f"{record.path}: a tolerance for each output")
    demand(it.flops(dims) > 0 and it.bytes(dims) > 0, f"{record.path}: flops and bytes are positive")


def _task_arrays(
    what: str, it: Task, dims: Mapping[str, int], arrays: Mapping[str, Array], *, output: bool
) -> None:
    wanted = {name: tensor for name, tensor in it.tensors.items() if tensor.output == output}
    demand(set(arrays) == set(wanted), f"{what}: tensors {sorted(arrays)}, declared {sorted(wanted)}")
    for name, tensor in wanted.items():
        shape = tuple(dims[axis] for axis in tensor.shape)
        dtype = np.dtype(np.float64) if output else DType(tensor.dtype).numpy
        got = arrays[name]
        demand(got.shape == shape, f"{what}: {name} has shape {got.shape}, declared {shape}")
        demand(got.dtype == dtype, f"{what}: {name} has dtype {got.dtype}, expected {dtype}")


def device_checks(
    registry: Registry, record: PluginRecord, it: Device, hidden: Sequence[Any]
) -> Iterator[Named]:
    yield "limits", partial(_device_limits, record, it)


def _device_limits(record: PluginRecord, it: Device) -> None:
    demand(it.arch in ARCHS, f"{record.path}: unknown architecture {it.arch}; one of {', '.join(ARCHS)}")
    for name in (n for n in Device.__annotations__ if n not in ("name", "arch")):
        value = getattr(it, name, None)
        demand(
            isinstance(value, int) and value > 0, f"{record.path}: {name} is {value}, not a positive integer"
        )
