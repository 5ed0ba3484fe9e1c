"""Which small shapes a kernel is executed on: every ring wraps, every axis has a tail, some CTA takes a
second persistent tile; and the smallest shape that the contract admits.

Tile sizes are read off the kernel (`ceil_div(D, T)`), granules off its contract (`D % g == 0`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import lcm

from cake.ir import nodes as n
from cake.ir.evaluate import EvaluationError, evaluate
from cake.verify.contract import Dims, depends, holds, parts, repair

MAX_INSTANCES = 4
MAX_TRIES = 400
MOST_TILE = 4096


@dataclass(frozen=True, slots=True)
class Choice:
    """Dims to instantiate on, constants changed for it (the number of persistent CTAs), and CTAs to execute
    beside those that always are."""

    dims: Mapping[str, int]
    constants: Mapping[str, int | float]
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """What the kernel says about a dimension: tile, granule, whether a loop inside a CTA runs over it."""

    tile: int
    granule: int
    looped: bool


def choose(kernel: n.Kernel, constants: Mapping[str, int | float]) -> list[Choice]:
    """At most four choices; empty where no tried shape meets the contract."""
    values: dict[str, int | float] = {c.name: c.default for c in kernel.constants} | dict(constants)
    lets = {s.targets[0]: s.value for s in kernel.body if isinstance(s, n.Assign) and len(s.targets) == 1}
    axes = {dim: _axis(kernel, dim, values, lets) for dim in kernel.dims}
    depth = _ring_depth(kernel, values)
    few = dict.fromkeys(_persistent(kernel), 2)
    out: list[Choice] = []
    for wanted in _wishes(axes, depth):
        dims = _admitted(kernel, values, axes, wanted)
        choice = Choice(dims, few) if dims is not None else None
        if choice is not None and choice not in out:
            out.append(choice)
    return out[:MAX_INSTANCES]


def _wishes(axes: Mapping[str, Axis], depth: int) -> Iterator[Dims]:
    """Dims in the order of what they show: wraps with tails, exact tiles, the smallest."""

    def tail(a: Axis) -> int:
        return a.granule if a.granule < a.tile else a.tile

    yield {
        d: a.tile * (2 * depth + 1 if a.looped else 2) + (tail(a) if a.tile > 1 else 0)
        for d, a in axes.items()
    }
    yield {d: a.granule for d, a in axes.items()}
    yield {d: a.tile * (depth if a.looped else 1) for d, a in axes.items()}


def _admitted(
    kernel: n.Kernel, values: Mapping[str, int | float], axes: Mapping[str, Axis], wanted: Dims
) -> Dims | None:
    """`wanted`, or a shape near it that the contract admits."""
    found = repair(kernel, values, {d: a.granule for d, a in axes.items()}, wanted)
    if found is not None:
        return found
    for bumps in _bumps(len(axes)):
        dims = {d: wanted[d] + bump * a.granule for (d, a), bump in zip(axes.items(), bumps, strict=True)}
        if holds(kernel, values, dims):
            return dims
    return None


def _bumps(axes: int) -> list[tuple[int, ...]]:
    """How many granules to add on each axis, smallest sums first; on many axes, the same on all."""
    if axes > 5:
        return [(bump,) * axes for bump in range(8)]
    steps = [range(8) if axes <= 3 else range(3)] * axes
    return sorted(product(*steps), key=sum)[:MAX_TRIES]


def _axis(kernel: n.Kernel, dim: str, values: Mapping[str, int | float], lets: Mapping[str, n.Expr]) -> Axis:
    tiles = [t for e in _every(kernel) if (t := _tile_of(e, dim, values)) is not None]
    granule = _granule(kernel, dim, values)
    tile = max(tiles, default=0)
    looped = any(
        isinstance(s, n.For) and dim in depends(s.stop, lets) and "block" not in depends(s.start, lets)
        for s in n.walk(kernel.body)
    )
    if not tile:
        # A whole row or a grid axis: long enough for several warps' vectors, and no power of two.
        whole = any(_is_row(kernel, e, dim) for e in _every(kernel)) or _is_vector_axis(kernel, dim)
        tile = granule * 125 if whole else 1
    return Axis(max(1, min(tile, MOST_TILE)), granule, looped)


def _every(kernel: n.Kernel) -> Iterator[n.Expr | n.Range]:
    for stmt in n.walk(kernel.body):
        for expr in n.expressions(stmt):
            yield from n.walk_expr(expr)


def _tile_of(expr: n.Expr | n.Range, dim: str, values: Mapping[str, int | float]) -> int | None:
    match expr:
        case n.Call(name="ceil_div", args=(n.Name(id=name), size)) if name == dim:
            return _number(size, values)
        case n.Binary(op="//", left=n.Name(id=name), right=size) if name == dim:
            return _number(size, values)
    return None


def _granule_of(condition: n.Expr, dim: str, values: Mapping[str, int | float]) -> int | None:
    match condition:
        case n.Compare(
            op="==", left=n.Binary(op="%", left=n.Name(id=name), right=step), right=n.Int(value=0)
        ) if name == dim:
            return _number(step, values)
    return None


def _granule(kernel: n.Kernel, dim: str, values: Mapping[str, int | float]) -> int:
    found = [g for c in parts(kernel.requires) if (g := _granule_of(c, dim, values)) is not None]
    return lcm(*found) if found else 1


def granules_of(kernel: n.Kernel, values: Mapping[str, int | float]) -> dict[str, int]:
    """Per dim, what the contract demands it to be a multiple of."""
    return {dim: _granule(kernel, dim, values) for dim in kernel.dims}


def _number(expr: n.Expr, values: Mapping[str, int | float]) -> int | None:
    try:
        value = evaluate(expr, values)
    except EvaluationError:
        return None
    return value if isinstance(value, int) and value > 0 else None


def _is_row(kernel: n.Kernel, expr: n.Expr | n.Range, dim: str) -> bool:
    """A window `x[.., :]` whose whole axis is `dim`."""
    if not isinstance(expr, n.Index):
        return False
    for param in kernel.params:
        if param.name == expr.base and len(expr.items) == len(param.shape):
            for item, axis in zip(expr.items, param.shape, strict=True):
                if isinstance(item, n.Range) and item.start is None and axis == n.Name(dim):
                    return True
    return False


def _is_vector_axis(kernel: n.Kernel, dim: str) -> bool:
    names = {p.name for p in kernel.params if p.shape == (n.Name(dim),)}
    return any(isinstance(e, n.Name) and e.id in names for e in _every(kernel))


def _ring_depth(kernel: n.Kernel, values: Mapping[str, int | float]) -> int:
    depths = [1]
    for expr in _every(kernel):
        match expr:
            case n.Call(name="ring", args=(_, size)) | n.Binary(op="%", right=size):
                depth = _number(size, values)
                if depth is not None and depth <= 16:
                    depths.append(depth)
    return max(depths)


def _persistent(kernel: n.Kernel) -> set[str]:
    """Constants that bound the grid from above: `grid(min(tiles, SMS))`."""
    known = {c.name for c in kernel.constants}
    found: set[str] = set()
    for stmt in kernel.body:
        if isinstance(stmt, n.Grid) and isinstance(stmt.blocks, n.Call) and stmt.blocks.name == "min":
            found |= {a.id for a in stmt.blocks.args if isinstance(a, n.Name) and a.id in known}
    return found
