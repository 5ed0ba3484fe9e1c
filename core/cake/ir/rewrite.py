"""Rewriting kernels: expressions and statements replaced, everything untouched shared with the original."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

from cake.ir import nodes as n

Block = tuple[n.Stmt, ...]
_STATEMENTS = get_args(n.Stmt)


# --- expressions ------------------------------------------------------------------------------------------


def rebuilt(value: Any, edit: Callable[[Any], Any]) -> Any:
    """`value` with `edit` applied to its nodes and tuples, inner first; unchanged parts are kept."""
    if isinstance(value, tuple):
        items = tuple(rebuilt(item, edit) for item in value)
        same = all(a is b for a, b in zip(items, value, strict=True))
        return edit(value if same else items)
    if isinstance(value, n.Node):
        inner = {}
        for field in fields(value):
            old = getattr(value, field.name)
            if isinstance(old, n.Node | tuple):
                new = rebuilt(old, edit)
                if new is not old:
                    inner[field.name] = new
        return edit(replace(value, **inner) if inner else value)
    return value


def substituted(value: Any, old: n.Expr, new: n.Expr) -> Any:
    """`value` with every expression equal to `old` replaced by `new`."""
    return rebuilt(value, lambda part: new if isinstance(part, n.Node) and part == old else part)


def exchanged(value: Any, old: n.Node, new: n.Node) -> Any:
    """`value` with the one node that *is* `old` replaced by `new`; its equals elsewhere stay."""
    if value is old:
        return new
    if isinstance(value, tuple):
        items = tuple(exchanged(item, old, new) for item in value)
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if isinstance(value, n.Node):
        for field in fields(value):
            inner = getattr(value, field.name)
            if isinstance(inner, n.Node | tuple):
                changed = exchanged(inner, old, new)
                if changed is not inner:
                    return replace(value, **{field.name: changed})
    return value


def over_blocks(body: Block, edit: Callable[[Block], Block]) -> Block:
    """`body` with `edit` applied to each list of statements, inner first."""
    out: Block = rebuilt(body, lambda part: edit(part) if is_block(part) else part)
    return out


def is_block(part: Any) -> bool:
    """A list of statements, and not an empty one."""
    return isinstance(part, tuple) and bool(part) and all(isinstance(item, _STATEMENTS) for item in part)


# --- statements -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spot:
    """A statement in its surroundings: its block, its number there, and what encloses it, outermost first."""

    stmt: n.Stmt
    block: Block
    number: int
    parents: Block

    @property
    def before(self) -> n.Stmt | None:
        return self.block[self.number - 1] if self.number else None

    @property
    def after(self) -> n.Stmt | None:
        return self.block[self.number + 1] if self.number + 1 < len(self.block) else None

    @property
    def role(self) -> n.Role | None:
        return next((p for p in self.parents if isinstance(p, n.Role)), None)

    @property
    def loops(self) -> tuple[n.For, ...]:
        return tuple(p for p in self.parents if isinstance(p, n.For))


def spots(body: Block, parents: Block = ()) -> Iterator[Spot]:
    """Every statement under `body` with its surroundings, in order of the text."""
    for number, stmt in enumerate(body):
        yield Spot(stmt, body, number, parents)
        for block in n.blocks_of(stmt):
            yield from spots(block, (*parents, stmt))


def spliced(body: Block, edits: Mapping[int, Block]) -> Block:
    """`body` with each statement whose `id` is a key of `edits` replaced by the statements given for it. A
    statement given for itself stays, and what stands inside it is edited in turn."""
    out: list[n.Stmt] = []
    for stmt in body:
        for new in edits.get(id(stmt), (stmt,)):
            out.append(_inside(new, edits) if new is stmt else new)
    return tuple(out)


def _inside(stmt: n.Stmt, edits: Mapping[int, Block]) -> n.Stmt:
    changed: dict[str, Any] = {}
    for field in fields(stmt):
        block = getattr(stmt, field.name)
        if is_block(block):
            new = spliced(block, edits)
            if len(new) != len(block) or any(a is not b for a, b in zip(new, block, strict=True)):
                changed[field.name] = new
    return replace(stmt, **changed) if changed else stmt
