"""Which branches and loop bodies the executed CTAs have taken, and shapes on which the others are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cake.ir import nodes as n
from cake.ir.evaluate import EvaluationError, evaluate
from cake.verify.contract import Dims, Numbers, depends, environment, holds, near, repair
from cake.verify.instances import Choice, granules_of

Taken = set[tuple[int, bool]]
"""By identity of an `if` or a loop: its condition held, or not; its body ran, or not at all."""
MOST_BLOCKS = 4096


@dataclass(frozen=True, slots=True)
class Gap:
    """What nothing executed has done: `body`, under `stmt` where its condition is `wanted`; with an empty
    body, passing an `if` by."""

    stmt: n.If | n.For
    wanted: bool
    body: tuple[n.Stmt, ...]

    def __str__(self) -> str:
        if not self.body:
            return f"line {self.stmt.span.line}: the condition held in every CTA that was executed"
        first, last = self.body[0].span.line, max(s.span.line for s in n.walk(self.body))
        lines = f"line {first}" if first == last else f"lines {first} to {last}"
        return f"{lines}: no CTA that was executed gets there"


def gaps(body: Sequence[n.Stmt], taken: Taken) -> Iterator[Gap]:
    """The outermost statements not reached, in order of the text."""
    for stmt in body:
        if isinstance(stmt, n.If | n.For):
            branches = (stmt.body, stmt.orelse) if isinstance(stmt, n.If) else (stmt.body,)
            for wanted, branch in zip((True, False), branches, strict=False):
                if (id(stmt), wanted) in taken:
                    yield from gaps(branch, taken)
                elif branch or isinstance(stmt, n.If):
                    yield Gap(stmt, wanted, branch)
        else:
            for inside in n.blocks_of(stmt):
                yield from gaps(inside, taken)


def reach(kernel: n.Kernel, constants: Numbers, base: Choice, gap: Gap) -> Choice | None:
    """A shape, and a CTA of it, by which `gap` is taken, where a comparison of dims and `block` decides that;
    None where none is found."""
    if not isinstance(gap.stmt, n.If):
        return None
    lets = _definitions(kernel)
    values = {c.name: c.default for c in kernel.constants} | dict(constants) | dict(base.constants)
    names = depends(gap.stmt.condition, lets)
    if names - set(kernel.dims) - set(values) - set(lets) - {"block", "blocks"}:
        return None
    for dims in _shapes(kernel, values, dict(base.dims), gap.stmt.condition, names):
        env = environment(kernel, values, dims)
        blocks = _grid(kernel, env)
        for block in _blocks(gap.stmt.condition, blocks):
            here = {**env, "block": block, "blocks": blocks}
            if _decided(gap.stmt.condition, lets, here) is gap.wanted:
                return Choice(dims, base.constants, (block,))
    return None


def _shapes(
    kernel: n.Kernel, values: Numbers, base: Dims, condition: n.Expr, names: set[str]
) -> Iterator[Dims]:
    """Shapes near `base`, one axis changed, within the contract; of more CTAs where their index decides."""
    granules = granules_of(kernel, values)
    yield base
    grid = next((s.blocks for s in kernel.body if isinstance(s, n.Grid)), None)
    over = depends(grid, _definitions(kernel)) if grid is not None and "block" in names else set()
    for axis in kernel.dims:
        if axis not in names | over:
            continue
        for value in near(base, axis, granules[axis], condition):
            dims: Dims | None = {**base, axis: value}
            if not holds(kernel, values, {**base, axis: value}):
                dims = repair(kernel, values, granules, {**base, axis: value})
            if dims is not None:
                yield dims


def _blocks(condition: n.Expr, blocks: int) -> list[int]:
    literals = {e.value for e in n.walk_expr(condition) if isinstance(e, n.Int)}
    wanted = {0, 1, blocks - 1, *(v + step for v in literals for step in (-1, 0, 1))}
    return sorted(b for b in wanted if 0 <= b < min(blocks, MOST_BLOCKS))


def _grid(kernel: n.Kernel, env: Numbers) -> int:
    for stmt in kernel.body:
        if isinstance(stmt, n.Grid):
            try:
                return int(evaluate(stmt.blocks, env))
            except EvaluationError:
                return 0
    return 0


def _definitions(kernel: n.Kernel) -> dict[str, n.Expr]:
    """Names that one statement assigns, and what to."""
    found: dict[str, list[n.Expr]] = {}
    for stmt in n.walk(kernel.body):
        if isinstance(stmt, n.Assign):
            for target in stmt.targets:
                found.setdefault(target, []).append(stmt.value)
        elif isinstance(stmt, n.For):
            found.setdefault(stmt.variable, []).extend((stmt.start, stmt.stop))
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _decided(condition: n.Expr, lets: Mapping[str, n.Expr], env: dict[str, int | float]) -> bool | None:
    """The condition's value; None where it cannot be said."""
    known = dict(env)
    for _ in range(len(lets) + 1):
        try:
            return bool(evaluate(condition, known))
        except EvaluationError:
            before = len(known)
            for name, value in lets.items():
                if name not in known:
                    try:
                        known[name] = evaluate(value, known)
                    except EvaluationError:
                        continue
            if len(known) == before:
                return None
    return None
