"""What tactics share: finding and replacing in kernels, constants and their roles, names that are free."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod

from cake.ir import nodes as n
from cake.ir.evaluate import EvaluationError, evaluate
from cake.ir.rewrite import Block
from cake.ir.types import DType
from cake.kinds.tactic import Move, Report

Number = int | float


# --- finding ----------------------------------------------------------------------------------------------


def calls(stmt: n.Stmt, name: str) -> n.Call | None:
    """The call, if the statement is `name(...)`."""
    if isinstance(stmt, n.Do) and stmt.call.name == name:
        return stmt.call
    return None


def all_expressions(body: Block) -> Iterator[n.Expr | n.Range]:
    """Every expression under `body`, outer first."""
    for stmt in n.walk(body):
        for expr in n.expressions(stmt):
            yield from n.walk_expr(expr)


def names_in(expr: n.Expr | n.Range) -> set[str]:
    """The names that an expression mentions."""
    return {e.id for e in n.walk_expr(expr) if isinstance(e, n.Name)}


def taken(kernel: n.Kernel) -> set[str]:
    """Every name that the kernel gives a meaning to."""
    out = {p.name for p in kernel.params} | {c.name for c in kernel.constants} | set(kernel.dims)
    for stmt in n.walk(kernel.body):
        match stmt:
            case n.Assign(targets=targets):
                out.update(targets)
            case n.For(variable=variable):
                out.add(variable)
            case n.Shared(name=name) | n.MBarrier(name=name):
                out.add(name)
    return out


# --- constants --------------------------------------------------------------------------------------------


def with_constant(kernel: n.Kernel, name: str, value: Number) -> n.Kernel:
    """The kernel with another default of a constant."""
    constants = tuple(replace(c, default=value) if c.name == name else c for c in kernel.constants)
    return replace(kernel, constants=constants)


def tile_constants(kernel: n.Kernel) -> set[str]:
    """Constants that size windows of global tensors; not those that divide a shared tile among warps."""
    tensors = {p.name for p in kernel.params}
    out: set[str] = set()
    for expr in all_expressions(kernel.body):
        if isinstance(expr, n.Index) and expr.base in tensors:
            for item in expr.items:
                if isinstance(item, n.Range) and item.size is not None:
                    out |= names_in(item.size)
    shared = {name for s in kernel.body if isinstance(s, n.Shared) for e in s.shape for name in names_in(e)}
    return (out & {c.name for c in kernel.constants}) - (_of_roles(kernel) - shared)


def ring_constants(kernel: n.Kernel) -> set[str]:
    """Constants that are the first extent of a shared buffer and the period of an index: stages of a ring."""
    firsts = {
        s.shape[0].id for s in kernel.body if isinstance(s, n.Shared) and isinstance(s.shape[0], n.Name)
    }
    periods: set[str] = set()
    for expr in all_expressions(kernel.body):
        match expr:
            case n.Call(name="ring", args=(_, n.Name(id=name))) | n.Binary(op="%", right=n.Name(id=name)):
                periods.add(name)
    return firsts & periods & {c.name for c in kernel.constants}


def role_constants(kernel: n.Kernel) -> set[str]:
    """Constants that the number of a role's warps depends on and that size no tile of the CTA."""
    return (_of_roles(kernel) & {c.name for c in kernel.constants}) - tile_constants(kernel)


def _of_roles(kernel: n.Kernel) -> set[str]:
    return {name for role in kernel.roles for name in names_in(role.warps)}


def vector_constants(kernel: n.Kernel) -> set[str]:
    """Constants that are the `vector` of a load or store."""
    out: set[str] = set()
    for expr in all_expressions(kernel.body):
        if isinstance(expr, n.Call):
            out |= {v.id for key, v in expr.keywords if key == "vector" and isinstance(v, n.Name)}
    return out & {c.name for c in kernel.constants}


def contract_holds(kernel: n.Kernel, dims: Mapping[str, int], **constants: Number) -> bool:
    """Whether `dims` meet the contract with `constants` over the defaults; unknown conditions hold."""
    env: dict[str, Number] = {c.name: c.default for c in kernel.constants} | dict(constants) | dict(dims)
    for condition in kernel.requires:
        try:
            if not evaluate(condition, env):
                return False
        except EvaluationError:
            continue
    return True


def constant_moves(
    kernel: n.Kernel, names: set[str], report: Report, what: str, wanted: Callable[[n.Constant, Number], bool]
) -> Iterator[Move]:
    """Moves `NAME=value` to the other choices of those constants, near ones first.

    Where shared memory does not take the change, rings get as many stages as it takes: `BN=256,STAGES=3`.
    """
    found = []
    for constant in kernel.constants:
        if constant.name not in names:
            continue
        for value in constant.choices:
            if value == constant.default or not wanted(constant, value):
                continue
            changes = fitted(kernel, report, {constant.name: value})
            if changes is not None and contract_holds(kernel, report.dims, **changes):
                steps = abs(constant.choices.index(value) - _place(constant))
                found.append((steps, changes))
    for _, changes in sorted(found, key=lambda item: item[0]):
        key = ",".join(f"{name}={value}" for name, value in changes.items())
        words = [f"{name} from {kernel.constant(name).default} to {value}" for name, value in changes.items()]
        yield Move(key, f"{what}: {', '.join(words)}", changes)


def _place(constant: n.Constant) -> int:
    """Where the default stands among the choices."""
    return sum(choice < constant.default for choice in constant.choices)


def apply_constants(kernel: n.Kernel, move: Move) -> n.Kernel:
    """What a move of `constant_moves` does: each parameter is a constant's new default."""
    for name, value in move.parameters.items():
        assert not isinstance(value, str)
        kernel = with_constant(kernel, name, value)
    return kernel


# --- shared memory ----------------------------------------------------------------------------------------

SHARED_LIMITS = {80: 163, 89: 99, 90: 227, 100: 227, 120: 99}
"""KiB of shared memory a CTA may take, by compute capability (CUDA C++ Programming Guide)."""


def fitted(kernel: n.Kernel, report: Report, changes: Mapping[str, Number]) -> dict[str, Number] | None:
    """`changes`, with rings of fewer stages where they must be; None where nothing fits."""
    limit = SHARED_LIMITS.get(int(report.arch.removeprefix("sm_").rstrip("a")), 0) * 1024
    taken_now = shared_bytes(kernel, report.dims, changes)
    if taken_now is None or taken_now <= limit:
        return dict(changes)
    for name in sorted(ring_constants(kernel) - set(changes)):
        ring = kernel.constant(name)
        for stages in sorted((c for c in ring.choices if c < ring.default), reverse=True):
            less = {**changes, name: stages}
            if (shared_bytes(kernel, report.dims, less) or 0) <= limit:
                return less
    return None


def shared_bytes(kernel: n.Kernel, dims: Mapping[str, int], changes: Mapping[str, Number]) -> int | None:
    """About what the CTA's buffers take, each aligned to 1024 bytes; None where that depends on more."""
    env: dict[str, Number] = {c.name: c.default for c in kernel.constants} | dict(changes) | dict(dims)
    total = 1024
    for stmt in kernel.body:
        try:
            if isinstance(stmt, n.Assign) and len(stmt.targets) == 1:
                env[stmt.targets[0]] = evaluate(stmt.value, env)
            elif isinstance(stmt, n.Shared) and stmt.overlay is None:
                size = DType(stmt.dtype).bytes * prod(evaluate(axis, env) for axis in stmt.shape)
                total += -(-size // 1024) * 1024
        except EvaluationError:
            if isinstance(stmt, n.Shared):
                return None
    return total
