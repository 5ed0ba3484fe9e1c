"""Tactics: `after` exact, clean and equal in values; refusals hold; `apply` is pure; evidence resolves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, get_args

from cake.conformance.support import (
    Named,
    compare,
    dedent,
    demand,
    demand_cases,
    expect_silent,
    instance_of,
    outputs_of,
    random_inputs,
)
from cake.ir import Kernel, parse, print_kernel
from cake.ir.types import DType
from cake.kinds import tactic
from cake.plugins import PluginRecord, Registry


def tactic_checks(
    registry: Registry, record: PluginRecord, it: tactic.Tactic, hidden: Sequence[Any]
) -> Iterator[Named]:
    yield "has-cases", partial(demand_cases, record, it.cases, tactic.Rewrites, tactic.Refuses)
    yield "typed", partial(_tactic_fields, registry, record, it)
    for case in [*it.cases, *hidden]:
        where = f"{record.path}: {case.name}"
        if isinstance(case, tactic.Refuses):
            yield case.name, partial(_tactic_refuses, it, case, where)
        else:
            yield case.name, partial(_tactic_rewrites, it, case, where)
            yield f"{case.name} clean", partial(expect_silent, registry, case.after, case.dims, where)
            if case.dims:
                yield f"{case.name} values", partial(_tactic_values, registry, case, where)


def _tactic_fields(registry: Registry, record: PluginRecord, it: tactic.Tactic) -> None:
    unknown = sorted(it.symptoms - set(get_args(tactic.Symptom)))
    demand(not unknown, f"{record.path}: no symptom of the cost report: {', '.join(unknown)}")
    for run in it.evidence:
        demand((registry.root / run.record).exists(), f"{record.path}: evidence {run.record} does not exist")
        low, high = run.interval
        demand(low <= run.ratio <= high, f"{record.path}: ratio {run.ratio} lies outside {run.interval}")


def _moves(it: tactic.Tactic, kernel: Kernel, dims: Mapping[str, int]) -> dict[str, tactic.Move]:
    report = tactic.Report(frozenset(it.symptoms), dims, kernel.arch)
    return {move.key: move for move in it.sites(kernel, report)}


def _tactic_refuses(it: tactic.Tactic, case: tactic.Refuses, where: str) -> None:
    offered = _moves(it, parse(dedent(case.before), where), case.dims)
    bad = [key for key in offered if case.key in ("", key)]
    demand(not bad, f"{where}: offers {', '.join(bad)}")


def _tactic_rewrites(it: tactic.Tactic, case: tactic.Rewrites, where: str) -> None:
    kernel = parse(dedent(case.before), where)
    before = print_kernel(kernel)
    offered = _moves(it, kernel, case.dims)
    demand(case.key in offered, f"{where}: no move {case.key!r}; offered: {', '.join(offered) or 'none'}")
    result = it.apply(kernel, offered[case.key])
    got, want = print_kernel(result), print_kernel(parse(dedent(case.after), where))
    demand(got == want, f"{where}: `after` differs; got\n{got}\nexpected\n{want}")
    demand(parse(got) == result, f"{where}: the rewritten kernel does not survive print and parse")
    demand(print_kernel(kernel) == before, f"{where}: `apply` changed the kernel that it was given")
    demand(it.apply(kernel, offered[case.key]) == result, f"{where}: `apply` gives another kernel each time")


def _tactic_values(registry: Registry, case: tactic.Rewrites, where: str) -> None:
    """Both kernels agree to the rounding of the output's dtype: a rewrite may regroup f32 sums, no more."""
    first = instance_of(registry, dedent(case.before), case.dims, where)
    second = instance_of(registry, dedent(case.after), case.dims, where)
    inputs = random_inputs(first, seed=0)
    before, after = outputs_of(first, inputs), outputs_of(second, inputs)
    for name, want in before.items():
        compare(after[name], want, ROUNDING[first.buffers[name].dtype], f"{where}: {name}")


ROUNDING: Mapping[DType, float] = {
    DType.i32: 0.0,
    DType.f32: 1e-5,
    DType.f16: 2.0**-10,
    DType.bf16: 2.0**-7,
    DType.e4m3: 2.0**-3,
    DType.e5m2: 2.0**-2,
}
"""One unit in the last place of the largest output; f32 leaves room for sums in another order."""
