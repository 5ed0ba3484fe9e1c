"""What divides an index whatever the run: the alignment facts behind the legality of windows.

`divisor` yields a number that divides every value an integer expression can take; 0 says that it is always 0.
Loop variables, `block`, `warp` and the like are known to be multiples of 1 only, so `warpgroup * 64` divides
by 64 and a name that holds it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from cake.ir import nodes as n
from cake.ir.evaluate import EvaluationError, evaluate
from cake.ir.types import Buffer


def divisor(expr: n.Expr, values: Mapping[str, int | float]) -> int:
    """A number that divides `expr` for all values of the names that `values` lacks."""
    try:
        value = evaluate(expr, values)
        return abs(value) if isinstance(value, int) else 1
    except EvaluationError:
        pass
    match expr:
        case n.Binary(op="*", left=left, right=right):
            return divisor(left, values) * divisor(right, values)
        case n.Binary(op="+" | "-" | "%", left=left, right=right):
            return gcd(divisor(left, values), divisor(right, values))
        case n.Unary(op="-", operand=operand):
            return divisor(operand, values)
        case n.Select(then=then, otherwise=otherwise):
            return gcd(divisor(then, values), divisor(otherwise, values))
        case n.Call(name="min" | "max", args=args):
            return gcd(*(divisor(arg, values) for arg in args))
    return 1


def steps(expr: n.Name | n.Index, buffer: Buffer, values: Mapping[str, int | float]) -> tuple[int, ...]:
    """Per axis of `buffer`, a divisor of where the window `expr` starts, in elements."""
    items = expr.items if isinstance(expr, n.Index) else ()
    out = []
    for axis in range(len(buffer.shape)):
        item = items[axis] if axis < len(items) else n.Range(None, None)
        start = item.start if isinstance(item, n.Range) else item
        out.append(0 if start is None else divisor(start, values))
    return tuple(out)
