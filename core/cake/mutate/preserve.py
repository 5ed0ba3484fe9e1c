"""Rewrites that keep what a kernel does, by construction: any report on one of them is a false alarm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from cake.ir import nodes as n
from cake.ir.printer import expr_text
from cake.ir.rewrite import Spot, exchanged, rebuilt
from cake.ir.types import INT
from cake.machine import effects as fx
from cake.mutate.mutant import Edit, Operator
from cake.mutate.survey import Subject
from cake.mutate.synchronization import edited, name_of

# --- names ------------------------------------------------------------------------------------------------


def renamed(subject: Subject) -> Iterator[Edit]:
    """Another name for a tensor, buffer, array of mbarriers, loop variable, local value, role or task."""
    kernel = subject.kernel
    taken = _names(kernel)
    for old in taken:
        new = f"{old}_"
        while new in taken:
            new += "_"
        yield _with_name(kernel, old, new), f"{old} is called {new}"
    for spot in subject.spots():
        if isinstance(spot.stmt, n.Role | n.Task):
            changed = replace(spot.stmt, name=f"{spot.stmt.name}_other")
            yield exchanged(kernel, spot.stmt, changed), f"{spot.stmt.name} is called {changed.name}"


def _names(kernel: n.Kernel) -> list[str]:
    found: dict[str, None] = {p.name: None for p in kernel.params}
    for stmt in n.walk(kernel.body):
        match stmt:
            case n.Assign(targets=targets):
                found.update(dict.fromkeys(targets))
            case n.For(variable=name) | n.Shared(name=name) | n.MBarrier(name=name):
                found[name] = None
    return list(found)


def _with_name(kernel: n.Kernel, old: str, new: str) -> n.Kernel:
    def edit(part: Any) -> Any:
        match part:
            case n.Name(id=name) if name == old:
                return replace(part, id=new)
            case n.Index(base=name) if name == old:
                return replace(part, base=new)
            case n.Assign(targets=targets) if old in targets:
                return replace(part, targets=tuple(new if t == old else t for t in targets))
            case n.For(variable=name) if name == old:
                return replace(part, variable=new)
            case n.Shared(name=name) | n.MBarrier(name=name) | n.Param(name=name) if name == old:
                return replace(part, name=new)
        return part

    out: n.Kernel = rebuilt(kernel, edit)
    return out


# --- order and tasks --------------------------------------------------------------------------------------


def reordered(subject: Subject) -> Iterator[Edit]:
    """Two neighbours that do not depend on each other change places."""
    for spot in subject.spots():
        if spot.after is not None and _independent(subject, spot.stmt, spot.after):
            edits = {id(spot.stmt): (), id(spot.after): (spot.after, spot.stmt)}
            yield edited(subject, edits), f"{_title(spot.stmt)} after {_title(spot.after)}"


def _independent(subject: Subject, a: n.Stmt, b: n.Stmt) -> bool:
    """Two scalar assignments, or a scalar assignment and a call without effect, that share no name; two
    declarations of which neither needs the other."""
    if isinstance(a, n.Shared | n.MBarrier) and isinstance(b, n.Shared | n.MBarrier):
        return not (isinstance(b, n.Shared) and b.overlay == n.Name(a.name))
    return (
        _is_pure(subject, a)
        and _is_pure(subject, b)
        and not (set(_targets(a)) & (_reads(b) | set(_targets(b))))
        and not (set(_targets(b)) & _reads(a))
    )


def _is_pure(subject: Subject, stmt: n.Stmt) -> bool:
    """It gives a name to a value that is made from names and numbers alone."""
    if not isinstance(stmt, n.Assign):
        return False
    made = [e for e in n.walk_expr(stmt.value) if subject.instance.is_primitive(e)]  # type: ignore[arg-type]
    known = [duty for e in made if (duty := subject.duties.get(id(e))) is not None]
    return len(known) == len(made) and not any(duty.effects or duty.primitive.in_place for duty in known)


def _targets(stmt: n.Stmt) -> tuple[str, ...]:
    return stmt.targets if isinstance(stmt, n.Assign) else ()


def _reads(stmt: n.Stmt) -> set[str]:
    return {e.id for x in n.expressions(stmt) for e in n.walk_expr(x) if isinstance(e, n.Name)}


def _title(stmt: n.Stmt) -> str:
    return ", ".join(_targets(stmt)) or name_of(stmt)


def merged(subject: Subject) -> Iterator[Edit]:
    """The statements of a task without the task."""
    for spot in subject.spots():
        if isinstance(spot.stmt, n.Task):
            yield edited(subject, {id(spot.stmt): spot.stmt.body}), f"no task {spot.stmt.name}"


def split(subject: Subject) -> Iterator[Edit]:
    """A task of its own for one statement of a role, or for half of a task."""
    for spot in subject.spots():
        if isinstance(spot.stmt, n.Task) and len(spot.stmt.body) > 1:
            half = len(spot.stmt.body) // 2
            first = replace(spot.stmt, name=f"{spot.stmt.name} 1", body=spot.stmt.body[:half])
            second = replace(spot.stmt, name=f"{spot.stmt.name} 2", body=spot.stmt.body[half:])
            yield edited(subject, {id(spot.stmt): (first, second)}), f"{spot.stmt.name} in two tasks"
        elif spot.parents and isinstance(spot.parents[-1], n.Role) and not isinstance(spot.stmt, n.Task):
            alone = n.Task("alone", (spot.stmt,))
            yield edited(subject, {id(spot.stmt): (alone,)}), f"a task for {_title(spot.stmt)}"


# --- loops and branches -----------------------------------------------------------------------------------


def unrolled(subject: Subject) -> Iterator[Edit]:
    """A loop whose bounds are known at compile time is unrolled, or no longer."""
    constants = {c.name for c in subject.kernel.constants}
    for spot in subject.spots():
        if isinstance(spot.stmt, n.For):
            bounds = (spot.stmt.start, spot.stmt.stop, spot.stmt.step)
            names = {e.id for b in bounds for e in n.walk_expr(b) if isinstance(e, n.Name)}
            fixed = not any(isinstance(e, n.Index) for b in bounds for e in n.walk_expr(b))
            if names <= constants and fixed and not spot.stmt.unroll:
                changed = replace(spot.stmt, unroll=True)
                yield exchanged(subject.kernel, spot.stmt, changed), f"{spot.stmt.variable} unrolled"


def shifted(subject: Subject) -> Iterator[Edit]:
    """A loop counts from one more, and its body subtracts it."""
    for spot in subject.spots():
        loop = spot.stmt
        if not isinstance(loop, n.For) or loop.unroll:
            continue
        less = n.Binary("-", n.Name(loop.variable), n.Int(1))

        def back(part: Any, variable: str = loop.variable, less: n.Binary = less) -> Any:
            return less if isinstance(part, n.Name) and part.id == variable else part

        body = rebuilt(loop.body, back)
        start, stop = (n.Binary("+", bound, n.Int(1)) for bound in (loop.start, loop.stop))
        changed = replace(loop, start=start, stop=stop, body=body)
        yield exchanged(subject.kernel, loop, changed), f"{loop.variable} counts from one more"


def guarded(subject: Subject) -> Iterator[Edit]:
    """A call under a condition that always holds."""
    holds = n.Compare(">=", n.Name("block"), n.Int(0))
    for spot in subject.spots():
        if isinstance(spot.stmt, n.Do) and spot.role is not None:
            inner = n.If(holds, (spot.stmt,))
            yield edited(subject, {id(spot.stmt): (inner,)}), f"{name_of(spot.stmt)} where block >= 0"


# --- scalars ----------------------------------------------------------------------------------------------


def hoisted(subject: Subject) -> Iterator[Edit]:
    """An integer expression gets a name before the call that uses it."""
    name = "hoisted"
    while name in _names(subject.kernel):
        name += "_"
    for spot, _ in subject.working():
        if spot.role is None:
            continue
        for expr in _arithmetic(subject, spot):
            changed = exchanged(spot.stmt, expr, n.Name(name))
            before = n.Assign((name,), expr)
            yield edited(subject, {id(spot.stmt): (before, changed)}), f"{expr_text(expr)} has a name"


def commuted(subject: Subject) -> Iterator[Edit]:
    """The operands of an integer sum or product change places."""
    for spot in subject.spots():
        if spot.role is not None:
            for expr in _arithmetic(subject, spot):
                if expr.op in ("+", "*") and not _advances(spot.stmt, expr):
                    swapped = replace(expr, left=expr.right, right=expr.left)
                    yield exchanged(subject.kernel, expr, swapped), f"{expr_text(swapped)}"


def padded(subject: Subject) -> Iterator[Edit]:
    """A zero is added to an index."""
    for spot in subject.spots():
        if spot.role is not None:
            for expr in _arithmetic(subject, spot):
                more = n.Binary("+", expr, n.Int(0))
                yield exchanged(subject.kernel, expr, more), f"{expr_text(expr)} + 0"


def _arithmetic(subject: Subject, spot: Spot) -> Iterator[n.Binary]:
    """Integer sums, products and the like, known at run time, in the statement; sizes of windows are left."""
    fixed = set(subject.instance.constants)
    for outer in n.expressions(spot.stmt):
        sizes = {id(e) for r in n.walk_expr(outer) if isinstance(r, n.Range) and r.size for e in _all(r.size)}
        for expr in n.walk_expr(outer):
            if isinstance(expr, n.Binary) and id(expr) not in sizes:
                names = {e.id for e in n.walk_expr(expr) if isinstance(e, n.Name)}
                if subject.instance.types.get(id(expr)) == INT and not names <= fixed:
                    yield expr


def _all(expr: n.Expr) -> Iterator[n.Expr | n.Range]:
    return n.walk_expr(expr)


def _advances(stmt: n.Stmt, expr: n.Binary) -> bool:
    """`x += e`, which is written so only with x on the left."""
    return isinstance(stmt, n.Assign) and stmt.value is expr and expr.left == n.Name(stmt.targets[0])


# --- more synchronization than needed ---------------------------------------------------------------------


def repeated(subject: Subject) -> Iterator[Edit]:
    """A fence, a meeting that all its warps come to here, or a wait for groups is executed twice in a row."""
    for spot, duty in subject.synchronizing():
        meeting = duty.effects.get(fx.Rendezvous)
        if meeting is not None and not (meeting.blocks and duty.meets_here_alone(subject.instance.warps)):
            continue
        if set(duty.effects) <= {fx.Fence, fx.Rendezvous, fx.WaitGroup}:
            yield edited(subject, {id(spot.stmt): (spot.stmt, spot.stmt)}), f"{name_of(spot.stmt)} twice"


def drained(subject: Subject) -> Iterator[Edit]:
    """A wait for groups leaves none in flight."""
    for spot, duty in subject.synchronizing():
        if set(duty.effects) == {fx.WaitGroup}:
            for _, expr in duty.given("int"):
                if expr != n.Int(0):
                    yield exchanged(subject.kernel, expr, n.Int(0)), f"{name_of(spot.stmt)} drains"


PRESERVING = (
    Operator("rename", "something has another name", renamed),
    Operator("reorder", "independent neighbours change places", reordered),
    Operator("merge-tasks", "a task is dissolved", merged),
    Operator("split-tasks", "a task is divided, or made for one statement", split),
    Operator("unroll", "a loop is unrolled", unrolled),
    Operator("shift-loop", "a loop counts from one more", shifted),
    Operator("guard-true", "a call under a condition that always holds", guarded),
    Operator("hoist", "an integer expression gets a name", hoisted),
    Operator("commute", "the operands of a sum or product change places", commuted),
    Operator("add-zero", "zero is added to an index", padded),
    Operator("repeat-sync", "a fence, meeting or wait for groups twice", repeated),
    Operator("drain", "a wait for groups leaves none in flight", drained),
)
