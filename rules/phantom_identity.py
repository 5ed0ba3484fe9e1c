"""Phantom elements change a reduction

Finds
    A row that does not fill its threads is reduced, and the `fill` of its phantoms is not the identity:
    -inf for a maximum, 0 for a sum.

Why
    Phantoms take part like any element: a maximum over negative numbers becomes 0.

Mend
    Load with the identity of the reduction that follows.

Silent when
    Arithmetic lies between load and reduction (apart from casts): what the phantoms hold then is not
    followed.

Source
    Public reports: padding that wins an arg-min.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from cake.diagnostics import Diagnostic
from cake.ir import Instance
from cake.ir import nodes as n
from cake.ir.layouts import Vector
from cake.ir.types import FragmentType
from cake.kinds.primitive import Site
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
    message = "{count} phantom elements hold {fill}, which is not the identity of `{reduction}`"
    help = "load with fill={identity}"
    cases = (
        Bad(
            "a maximum over zeros",
            """
@kernel(arch="sm_80")
def peak(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)  #> filled with
        store(y[:], v - warp_max(v), vector=1)  #!
""",
            fixed=MENDED,
            dims={"N": 40},
        ),
        Good("the identity", MENDED, dims={"N": 40}),
    )

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        instance = facts.instance
        loads: dict[str, Site] = {}
        for stmt in n.walk(instance.kernel.body):
            for expr in (e for x in n.expressions(stmt) for e in n.walk_expr(x)):
                if isinstance(expr, n.Call) and expr.name in IDENTITIES:
                    yield from self._reduction(instance, expr, loads)
            if isinstance(stmt, n.Assign) and (site := _load(instance, stmt.value, loads)) is not None:
                loads[stmt.targets[0]] = site

    def _reduction(self, instance: Instance, call: n.Call, loads: Mapping[str, Site]) -> Iterator[Diagnostic]:
        site = _load(instance, call.args[0], loads) if call.args else None
        if site is None or not isinstance(site.result, FragmentType):
            return
        layout = site.result.layout
        phantoms = layout.phantoms(site.result.shape) if isinstance(layout, Vector) else 0
        fill, identity = site.operand("fill").constant, IDENTITIES[call.name]
        if phantoms and fill != identity:
            yield self.report(
                call.span,
                "phantoms take part",
                secondary=((site.call.span, f"filled with {fill}"),),
                count=phantoms,
                fill=fill,
                reduction=call.name,
                identity=identity,
            )


def _load(instance: Instance, expr: n.Expr, loads: Mapping[str, Site]) -> Site | None:
    """The load that `expr` comes from, through casts and names."""
    match expr:
        case n.Name(id=name):
            return loads.get(name)
        case n.Call(name="cast", args=(inner, *_)):
            return _load(instance, inner, loads)
        case n.Call(name="load"):
            return instance.site(expr)
    return None
