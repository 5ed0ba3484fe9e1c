"""Scalar expressions as closures over a mapping of names: exact bounded integers, never run as Python."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from cake.diagnostics import Span
from cake.ir import nodes as n

Value = Any
Env = Mapping[str, Value]
Closure = Callable[[Env], Value]

_LIMIT = 2**63


class EvaluationError(Exception):
    """An expression has no value here: division by zero, overflow, a name without value."""

    def __init__(self, message: str, span: Span) -> None:
        self.message = message
        self.span = span
        super().__init__(message)


_FAST: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "/": operator.truediv,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def evaluate(expr: n.Expr, env: Env) -> Value:
    """The value of a scalar expression. Raises EvaluationError."""
    return closure(expr)(env)


def closure(expr: n.Expr) -> Closure:
    """A function of the environment that yields the value of `expr`; raises EvaluationError when called."""
    span = expr.span
    match expr:
        case n.Int(value=value) | n.Float(value=value) | n.Text(value=value):
            return lambda env: value
        case n.Name(id=name):
            return _name(name, span)
        case n.Unary(op=op, operand=operand):
            inner = closure(operand)
            return (lambda env: -inner(env)) if op == "-" else (lambda env: not inner(env))
        case n.Binary(op=op, left=left, right=right) | n.Compare(op=op, left=left, right=right):
            return _binary(op, closure(left), closure(right), span)
        case n.Logic(op=op, left=left, right=right):
            a, b = closure(left), closure(right)
            return (lambda env: a(env) and b(env)) if op == "and" else (lambda env: a(env) or b(env))
        case n.Select(condition=condition, then=then, otherwise=otherwise):
            c, t, o = closure(condition), closure(then), closure(otherwise)
            return lambda env: t(env) if c(env) else o(env)
        case n.Call(name=name, args=args, keywords=()) if name in HELPERS and len(args) == HELPERS[name]:
            return _helper(name, [closure(arg) for arg in args], span)
    return _fail("not a scalar expression", span)


HELPERS = {"ceil_div": 2, "min": 2, "max": 2, "ring": 2}
"""Integer helpers and their number of arguments; `ring(j, n)` is the pair (j % n, j // n & 1)."""


def _fail(message: str, span: Span) -> Closure:
    def fail(env: Env) -> Value:
        raise EvaluationError(message, span)

    return fail


def _name(name: str, span: Span) -> Closure:
    def look_up(env: Env) -> Value:
        try:
            return env[name]
        except KeyError:
            raise EvaluationError(f"`{name}` has no value here", span) from None

    return look_up


def _binary(op: str, a: Closure, b: Closure, span: Span) -> Closure:
    if op in _FAST and op != "/":
        fast = _FAST[op]
        return lambda env: fast(a(env), b(env))
    careful = {
        "*": _multiply,
        "/": _divide,
        "//": _floor,
        "%": _modulo,
        "<<": _shift_left,
        ">>": _shift_right,
    }[op]
    return lambda env: careful(a(env), b(env), span)


def _multiply(x: Value, y: Value, span: Span) -> Value:
    product = x * y
    if isinstance(product, int) and not -_LIMIT <= product < _LIMIT:
        raise EvaluationError("the product does not fit 64 bits", span)
    return product


def _divide(x: Value, y: Value, span: Span) -> Value:
    if y == 0:
        raise EvaluationError("division by zero", span)
    return x / y


def _floor(x: Value, y: Value, span: Span) -> Value:
    _natural(x, y, span)
    return x // y


def _modulo(x: Value, y: Value, span: Span) -> Value:
    _natural(x, y, span)
    return x % y


def _natural(x: Value, y: Value, span: Span) -> None:
    """Negative operands are refused: C++ truncates where Python floors."""
    if y == 0:
        raise EvaluationError("division by zero", span)
    if x < 0 or y < 0:
        raise EvaluationError(f"// and % need operands that are not negative, here {x} and {y}", span)


def _shift_left(x: Value, y: Value, span: Span) -> Value:
    if not 0 <= y < 63:
        raise EvaluationError(f"shift by {y}", span)
    return _multiply(x, 1 << y, span)


def _shift_right(x: Value, y: Value, span: Span) -> Value:
    if not 0 <= y < 64:
        raise EvaluationError(f"shift by {y}", span)
    return x >> y


def _helper(name: str, args: list[Closure], span: Span) -> Closure:
    a, b = args

    def ceil_div(env: Env) -> Value:
        x, y = a(env), b(env)
        _natural(x, y, span)
        return -(-x // y)

    def ring(env: Env) -> Value:
        x, y = a(env), b(env)
        _natural(x, y, span)
        return x % y, x // y & 1

    return {
        "ceil_div": ceil_div,
        "ring": ring,
        "min": lambda env: min(a(env), b(env)),
        "max": lambda env: max(a(env), b(env)),
    }[name]
