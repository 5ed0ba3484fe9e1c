"""Phantom elements change a reduction

Finds
    A row that does not fill its threads is reduced, and the `fill` of its phantoms is not the identity:
    -inf for a maximum, 0 for a sum.

Why
    Phantoms take part like any element: a maximum over negative numbers becomes 0.

Mend
    Load with the identity of the reduction that follows.

Silent when
    A window sticks out of the tensor at the end of a row (the values show it); or
    what the phantoms hold shows at run time only: arithmetic is followed as far as constants and the rules
    of zero and infinity go (`exp2((v - peak) * 1.44)` of -inf is 0).

Source
    Public reports: padding that wins an arg-min.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, isinf, isnan

from cake.diagnostics import Diagnostic
from cake.ir import Instance
from cake.ir import nodes as n
from cake.ir.layouts import Vector
from cake.ir.types import FragmentType
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts

MENDED = """
@kernel(arch="sm_80")
def peak(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=-inf)
        store(y[:], v - warp_max(v), vector=1)
"""


IDENTITIES = {"warp_max": -inf, "warp_sum": 0.0}


class PhantomIdentity(Rule):
    family = "num"
    needs = "instance"
    message = "{count} phantom elements hold {value}, which is not the identity of `{reduction}`"
    help = "choose the fill of the load so that the phantoms hold {identity} here"
    cases = (
        Bad(
            "a maximum over zeros",
            """
@kernel(arch="sm_80")
def peak(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)  #> loaded here
        store(y[:], v - warp_max(v), vector=1)  #!
""",
            fixed=MENDED,
            dims={"N": 40},
        ),
        Bad(
            "a sum of squares of ones",
            """
@kernel(arch="sm_80")
def norm(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=1.0)  #> loaded here
        store(y[:], v * warp_sum(v * v), vector=1)  #!
""",
            fixed="""
@kernel(arch="sm_80")
def norm(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        store(y[:], v * warp_sum(v * v), vector=1)
""",
            dims={"N": 40},
        ),
        Good("the identity", MENDED, dims={"N": 40}),
    )

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        held: dict[str, Held] = {}
        for stmt in n.walk(facts.instance.kernel.body):
            for expr in (e for x in n.expressions(stmt) for e in n.walk_expr(x)):
                if isinstance(expr, n.Call) and expr.name in IDENTITIES and expr.args:
                    yield from self._reduction(facts.instance, expr, held)
            if isinstance(stmt, n.Assign) and len(stmt.targets) == 1:
                name = stmt.targets[0]
                found = _held(facts.instance, stmt.value, held)
                if name in held and held[name] != found:
                    found = Held(None, found.load)
                held[name] = found

    def _reduction(self, instance: Instance, call: n.Call, held: Mapping[str, Held]) -> Iterator[Diagnostic]:
        kind = instance.types.get(id(call.args[0]))
        if not isinstance(kind, FragmentType) or not isinstance(kind.layout, Vector):
            return
        phantoms = kind.layout.phantoms(kind.shape)
        operand, identity = _held(instance, call.args[0], held), IDENTITIES[call.name]
        if not phantoms or operand.value is None or operand.value == identity:
            return
        load = operand.load
        yield self.report(
            call.span,
            "phantoms take part",
            secondary=((load.span, "loaded here"),) if load is not None else (),
            count=phantoms,
            value=operand.value,
            reduction=call.name,
            identity=identity,
        )


@dataclass(frozen=True, slots=True)
class Held:
    """What the phantom elements of a fragment (or a number) hold: None where that shows at run time only,
    and is finite; the load they come from."""

    value: float | None = None
    load: n.Call | None = None


def _held(instance: Instance, expr: n.Expr, held: Mapping[str, Held]) -> Held:
    """Through names, casts and arithmetic."""
    match expr:
        case n.Name(id=name) if name in held:
            return held[name]
        case n.Int(value=value) | n.Float(value=value):
            return Held(float(value))
        case n.Name(id=name) if name in instance.values:
            return Held(float(instance.values[name]))
        case n.Call(name="cast" | "abs", args=(inner, *_)):
            operand = _held(instance, inner, held)
            return Held(abs(operand.value), operand.load) if expr.name == "abs" and operand.value else operand
        case n.Call(name="load") if instance.is_primitive(expr):
            fill = instance.site(expr).operand("fill").constant
            return Held(float(fill) if isinstance(fill, int | float) else None, expr)
        case n.Call(name="exp2", args=(inner,)):
            operand = _held(instance, inner, held)
            return Held(None if operand.value is None else _exp2(operand.value), operand.load)
        case n.Unary(op="-", operand=inner):
            operand = _held(instance, inner, held)
            return Held(None if operand.value is None else -operand.value, operand.load)
        case n.Binary(op=op, left=left, right=right):
            a, b = _held(instance, left, held), _held(instance, right, held)
            return Held(_combined(op, a.value, b.value), a.load or b.load)
    return Held()


def _exp2(value: float) -> float | None:
    return 2.0**value if value < 1024 else inf


def _combined(op: str, a: float | None, b: float | None) -> float | None:
    """The result of an operator; an operand that is not known is taken as finite."""
    if a is not None and b is not None:
        if op == "/":
            return a / b if b else None
        known = {"+": a + b, "-": a - b, "*": a * b}.get(op)
        return None if known is None or isnan(known) else known
    if op in "+-" and a is not None and isinf(a):
        return a
    if op in "+-" and b is not None and isinf(b):
        return b if op == "+" else -b
    if op == "*" and 0.0 in (a, b):
        return 0.0
    return 0.0 if op == "/" and a == 0.0 else None
