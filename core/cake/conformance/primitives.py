"""Primitives: print and parse, verification, values, bytes, compilation for each architecture."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from cake.conformance.support import (
    Named,
    compare,
    dedent,
    demand,
    demand_cases,
    expect_marked,
    expect_silent,
    instance_of,
    outputs_of,
    random_inputs,
    read_marks,
)
from cake.conformance.touched import check_touched
from cake.ir import parse, print_kernel
from cake.ir.arch import ARCHS, admits, canonical, claimed
from cake.kinds import primitive
from cake.plugins import PluginRecord, Registry


def primitive_checks(
    registry: Registry, record: PluginRecord, it: primitive.Primitive, hidden: Sequence[Any]
) -> Iterator[Named]:
    yield "has-cases", partial(demand_cases, record, it.cases, primitive.Good, primitive.Bad)
    for case in [*it.cases, *hidden]:
        where = f"{record.path}: {case.name}"
        if isinstance(case, primitive.Bad):
            yield case.name, partial(_primitive_bad, registry, case, where)
            continue
        yield case.name, partial(_primitive_good, registry, it, case, where)
        if case.dims and case.expect is not None:
            yield f"{case.name} values", partial(_primitive_values, registry, case, where)
        if case.dims:
            yield f"{case.name} bytes", partial(_primitive_bytes, registry, it, case, where)
            for arch in _archs(it, case):
                what = f"{case.name} compiles {arch}"
                yield what, partial(_compiles, registry, case, arch, where)


def _primitive_bad(registry: Registry, case: primitive.Bad, where: str) -> None:
    marked = read_marks(case.kernel)
    demand(bool(marked.faults), f"{where}: mark the refused line with `#! code`")
    expect_marked(registry, marked, case.dims, where)


def _primitive_good(registry: Registry, it: primitive.Primitive, case: primitive.Good, where: str) -> None:
    text = dedent(case.kernel)
    kernel = parse(text, where)
    demand(parse(print_kernel(kernel)) == kernel, f"{where}: does not survive print and parse")
    words = set(re.findall(r"\w+|[^\w\s]+", text))
    used = words & {*it.names, *it.operators} or any(op in text for op in it.operators)
    demand(bool(used), f"{where}: uses none of {', '.join(it.names)}")
    expect_silent(registry, text, case.dims, where)


def _primitive_values(registry: Registry, case: primitive.Good, where: str) -> None:
    instance = instance_of(registry, dedent(case.kernel), case.dims, where)
    inputs = random_inputs(instance, seed=0)
    assert case.expect is not None
    wanted = case.expect({name: array.copy() for name, array in inputs.items()})
    got = outputs_of(instance, inputs)
    for name, want in wanted.items():
        compare(got[name], want, case.rtol, f"{where}: {name}")


def _primitive_bytes(registry: Registry, it: primitive.Primitive, case: primitive.Good, where: str) -> None:
    check_touched(instance_of(registry, dedent(case.kernel), case.dims, where), it, where)


def _archs(it: primitive.Primitive, case: primitive.Good) -> tuple[str, ...]:
    """What a good case is compiled for: the architectures that both it and the primitive claim."""
    if case.archs:
        return tuple(canonical(arch) for arch in case.archs)
    declared = re.search(r'@kernel\(arch="([^"]+)"\)', case.kernel)
    covered = claimed(canonical(declared.group(1))) if declared else ARCHS
    return tuple(arch for arch in covered if admits(it.archs, arch))


def _compiles(registry: Registry, case: primitive.Good, arch: str, where: str) -> None:
    from cake import codegen

    generated = codegen.generate(instance_of(registry, dedent(case.kernel), case.dims, where, arch))
    codegen.compile_source(generated.source, arch)
