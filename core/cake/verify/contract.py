"""Shapes within a kernel's contract: whether it holds, and the nearest shape at which a condition does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cake.ir import nodes as n
from cake.ir.evaluate import EvaluationError, evaluate

Dims = dict[str, int]
Numbers = Mapping[str, int | float]
MAX_REPAIRS = 12
LARGEST = 1 << 17
"""Beyond it a shape is not small enough to execute."""
REACH = 64
"""How many granules up from nothing are tried for an axis."""


def environment(kernel: n.Kernel, constants: Numbers, dims: Mapping[str, int]) -> dict[str, int | float]:
    """What is known at launch on these dims: constants, dims, and top-level names that follow from them."""
    values: dict[str, int | float] = {**constants, **dims}
    for stmt in kernel.body:
        try:
            if isinstance(stmt, n.Assign) and len(stmt.targets) == 1:
                values[stmt.targets[0]] = evaluate(stmt.value, values)
        except EvaluationError:
            continue
    return values


def true(condition: n.Expr, values: Numbers) -> bool:
    """Whether it holds; not where it has no value."""
    try:
        return bool(evaluate(condition, values))
    except EvaluationError:
        return False


def holds(kernel: n.Kernel, constants: Numbers, dims: Mapping[str, int]) -> bool:
    """Whether the contract admits these dims."""
    values = environment(kernel, constants, dims)
    return all(true(condition, values) for condition in kernel.requires)


def repair(kernel: n.Kernel, constants: Numbers, granules: Mapping[str, int], wanted: Dims) -> Dims | None:
    """`wanted`, changed axis by axis to where the contract holds; None where that is not found."""
    dims = dict(wanted)
    for _ in range(MAX_REPAIRS):
        values = environment(kernel, constants, dims)
        broken = [c for c in kernel.requires if not true(c, values)]
        if not broken:
            return dims
        changed = next(move(kernel, constants, granules, dims, broken[0]), None)
        if changed is None:
            return None
        dims = changed
    return None


def move(
    kernel: n.Kernel, constants: Numbers, granules: Mapping[str, int], dims: Dims, condition: n.Expr
) -> Iterator[Dims]:
    """`dims` with one axis changed so that `condition` holds, the nearest first."""
    lets = {s.targets[0]: s.value for s in kernel.body if isinstance(s, n.Assign) and len(s.targets) == 1}
    names = depends(condition, lets)
    for axis in (d for d in kernel.dims if d in names):
        for value in near(dims, axis, granules.get(axis, 1), condition):
            changed = {**dims, axis: value}
            if true(condition, environment(kernel, constants, changed)):
                yield changed
                break


def near(dims: Dims, axis: str, granule: int, condition: n.Expr) -> list[int]:
    """Sizes worth trying for an axis, the nearest to its present one first."""
    now = dims[axis]
    literals = {e.value for e in n.walk_expr(condition) if isinstance(e, n.Int)}
    found = {granule * k for k in range(1, REACH)} | {now + granule * k for k in range(-8, 9)}
    for literal in literals | set(dims.values()):
        found |= {literal + step for step in (-granule, -1, 0, 1, granule)} | {literal * granule}
    return sorted((v for v in found if 0 < v <= LARGEST), key=lambda v: (abs(v - now), v))


def depends(expr: n.Expr, lets: Mapping[str, n.Expr]) -> set[str]:
    """Names that `expr` rests on, through `lets`."""
    out: set[str] = set()
    todo = [expr]
    while todo:
        for node in n.walk_expr(todo.pop()):
            if isinstance(node, n.Name) and node.id not in out:
                out.add(node.id)
                if node.id in lets:
                    todo.append(lets[node.id])
    return out


def parts(conditions: Iterable[n.Expr]) -> Iterator[n.Expr]:
    """The conditions with every `and` taken apart."""
    for condition in conditions:
        if isinstance(condition, n.Logic) and condition.op == "and":
            yield from parts((condition.left, condition.right))
        else:
            yield condition
