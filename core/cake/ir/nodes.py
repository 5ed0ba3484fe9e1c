"""CAKE IR: frozen nodes, one class a construct. Spans never take part in equality or in the content hash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from cake.diagnostics import NOWHERE, Source, Span

Binary_op = Literal["+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>"]
Compare_op = Literal["<", "<=", ">", ">=", "==", "!="]


@dataclass(frozen=True, slots=True)
class Node:
    """Anything that has a place in the text."""

    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


# --- expressions ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Int(Node):
    value: int


@dataclass(frozen=True, slots=True)
class Float(Node):
    """A finite float, `inf` or `-inf` (spelled so in text)."""

    value: float


@dataclass(frozen=True, slots=True)
class Text(Node):
    """A quoted word: layout names, role names."""

    value: str


@dataclass(frozen=True, slots=True)
class Name(Node):
    id: str


@dataclass(frozen=True, slots=True)
class Unary(Node):
    op: Literal["-", "not"]
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(Node):
    op: Binary_op
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Compare(Node):
    op: Compare_op
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Logic(Node):
    op: Literal["and", "or"]
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Select(Node):
    """`then if condition else otherwise`."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class Range(Node):
    """`start : +size`, a window of `size` elements; both absent for `:`, the whole axis."""

    start: Expr | None
    size: Expr | None


@dataclass(frozen=True, slots=True)
class Index(Node):
    """`base[i, lo:+n]`: a place or a window in a tensor, a shared buffer, or one barrier of an array."""

    base: str
    items: tuple[Expr | Range, ...]


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A primitive, or one of the integer helpers `ceil_div min max ring`."""

    name: str
    args: tuple[Expr, ...]
    keywords: tuple[tuple[str, Expr], ...] = ()


Expr = Int | Float | Text | Name | Unary | Binary | Compare | Logic | Select | Index | Call


# --- statements -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assign(Node):
    """`a = e`, or `a, b = ring(j, STAGES)`. A name's type never changes."""

    targets: tuple[str, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Do(Node):
    """A call for its effect."""

    call: Call


@dataclass(frozen=True, slots=True)
class For(Node):
    """`for v in range(start, stop, step)`; `unroll(...)` in place of `range` unrolls fully."""

    variable: str
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Stmt, ...]
    unroll: bool = False


@dataclass(frozen=True, slots=True)
class If(Node):
    condition: Expr
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class OneThread(Node):
    """`with one_thread():` one elected thread of the "role" (its first warp), each "warpgroup" or "warp"."""

    scope: Literal["role", "warpgroup", "warp"]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Task(Node):
    """`with task("name"):` the unit of timelines, costs and diagnostics."""

    name: str
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Role(Node):
    """`with role("name", warps=n)` or `warpgroups=n`: the next n warps (4n for warpgroups) of the CTA."""

    name: str
    warps: Expr
    warpgroups: bool
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Require(Node):
    """The contract: the kernel is defined only where every condition holds."""

    conditions: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Grid(Node):
    """`grid(n)`: number of CTAs."""

    blocks: Expr


@dataclass(frozen=True, slots=True)
class Cluster(Node):
    """`cluster(n)`: n neighbouring CTAs run together and reach each other's shared memory."""

    size: Expr


@dataclass(frozen=True, slots=True)
class Shared(Node):
    """`name = Shared[dtype, d0, d1, ...](swizzle=128)`: the last axis is contiguous. With `overlay=other` it
    lies over the bytes of a buffer declared before it, from byte `offset` of that one on."""

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    swizzle: Expr | None = None
    overlay: Name | None = None
    offset: Expr | None = None


@dataclass(frozen=True, slots=True)
class TensorMemory(Node):
    """`name = TensorMemory[dtype, stages..., 128, n](column=c)`: lanes x columns of tensor memory, from
    column c of what the CTA allocates."""

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    column: Expr


@dataclass(frozen=True, slots=True)
class MBarrier(Node):
    """`name = MBarrier[n](arrivals=k)`: n mbarriers (one without brackets), k arrivals a phase."""

    name: str
    count: Expr | None
    arrivals: Expr


Declaration = Require | Grid | Cluster | Shared | TensorMemory | MBarrier
"""What stands at the top level and does nothing by itself."""
Stmt = Assign | Do | For | If | OneThread | Task | Role | Declaration


# --- the kernel -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Param(Node):
    """`name: Global[dtype, M, N]` (read) or `GlobalOut[...]` (written). Contiguous, last axis fastest."""

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    output: bool


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """`NAME=default` or `NAME: choice(a, b, c) = default`: a constant and what search may try."""

    name: str
    default: int | float
    choices: tuple[int | float, ...] = ()


@dataclass(frozen=True, slots=True)
class Kernel(Node):
    name: str
    arch: str
    params: tuple[Param, ...]
    constants: tuple[Constant, ...]
    body: tuple[Stmt, ...]
    doc: str = field(default="", compare=False)
    source: Source = field(default=Source("<built>", ""), compare=False, repr=False)

    @property
    def dims(self) -> tuple[str, ...]:
        """Symbolic dimensions in order of first appearance among the parameters' shapes."""
        known = {constant.name for constant in self.constants}
        names = [axis.id for param in self.params for axis in param.shape if isinstance(axis, Name)]
        return tuple(dict.fromkeys(name for name in names if name not in known))

    @property
    def roles(self) -> tuple[Role, ...]:
        return tuple(s for s in self.body if isinstance(s, Role))

    @property
    def requires(self) -> tuple[Expr, ...]:
        return tuple(c for s in self.body if isinstance(s, Require) for c in s.conditions)

    def constant(self, name: str) -> Constant:
        """The constant called `name`; KeyError where there is none."""
        for constant in self.constants:
            if constant.name == name:
                return constant
        raise KeyError(name)


# --- walking ----------------------------------------------------------------------------------------------


def blocks_of(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The statement lists directly inside `stmt`."""
    match stmt:
        case For(body=body) | OneThread(body=body) | Task(body=body) | Role(body=body):
            return (body,)
        case If(body=body, orelse=orelse):
            return (body, orelse)
    return ()


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement under `body`, outer before inner, in order of the text."""
    for stmt in body:
        yield stmt
        for block in blocks_of(stmt):
            yield from walk(block)


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions directly in `stmt`, not those of nested statements."""
    match stmt:
        case Assign(value=value):
            return (value,)
        case Do(call=call):
            return (call,)
        case For(start=start, stop=stop, step=step):
            return (start, stop, step)
        case If(condition=condition):
            return (condition,)
        case Role(warps=warps):
            return (warps,)
        case Require(conditions=conditions):
            return conditions
        case Grid(blocks=blocks):
            return (blocks,)
        case Cluster(size=size):
            return (size,)
        case Shared(shape=shape, swizzle=swizzle, overlay=overlay, offset=offset):
            return (*shape, *(e for e in (swizzle, overlay, offset) if e is not None))
        case TensorMemory(shape=shape, column=column):
            return (*shape, column)
        case MBarrier(count=count, arrivals=arrivals):
            return (arrivals,) if count is None else (count, arrivals)
    return ()


def children(expr: Expr | Range) -> tuple[Expr | Range, ...]:
    """The expressions directly inside `expr`."""
    match expr:
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right) | Compare(left=left, right=right) | Logic(left=left, right=right):
            return (left, right)
        case Select(condition=condition, then=then, otherwise=otherwise):
            return (condition, then, otherwise)
        case Range(start=start, size=size):
            return tuple(e for e in (start, size) if e is not None)
        case Index(items=items):
            return items
        case Call(args=args, keywords=keywords):
            return (*args, *(value for _, value in keywords))
    return ()


def walk_expr(expr: Expr | Range) -> Iterator[Expr | Range]:
    """`expr` and everything inside it, outer first."""
    yield expr
    for child in children(expr):
        yield from walk_expr(child)


def calls(body: tuple[Stmt, ...]) -> Iterator[Call]:
    """Every call under `body` in order of the text."""
    for stmt in walk(body):
        for expr in expressions(stmt):
            for node in walk_expr(expr):
                if isinstance(node, Call):
                    yield node
