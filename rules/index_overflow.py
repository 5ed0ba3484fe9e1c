"""Integer arithmetic of a kernel leaves 32 bits

Finds
    A product, sum, difference or shift inside a role that can pass 2^31 - 1 (or fall below -2^31) on this
    shape, from the ranges of `block`, `warp`, loop variables and sizes.

Why
    Scalars of a kernel are 32-bit integers on the GPU, as the coordinates of the copy engine are; what
    overflows addresses other bytes, on large shapes alone.

Mend
    Give windows their coordinates per axis (`x[row, col:+n]`): offsets in elements are then computed in 64
    bits. Or bound the shape: `require(M * N <= 2147483647)`.

Silent when
    The range of an operand is not known: values carried from one pass of a loop to the next.

Source
    Public reports of 32-bit offsets that break at exactly 2^31 elements; CUDA C++ integer conversions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cake.diagnostics import Diagnostic
from cake.ir import nodes as n
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts

Range = tuple[int, int]
LOWEST, HIGHEST = -(2**31), 2**31 - 1

MENDED = """
@kernel(arch="sm_80")
def rows(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    grid(M)
    with role("row", warps=1):
        i = block
        store(y[i, :], load(x[i, :], vector=1, fill=0.0), vector=1)
"""


class IndexOverflow(Rule):
    family = "mem"
    needs = "instance"
    message = "this value reaches {reached}, beyond 32-bit integers"
    help = "index each axis by its own coordinate, or bound the shape by require(...)"
    cases = (
        Bad(
            "an offset in elements",
            """
@kernel(arch="sm_80")
def rows(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    grid(M)
    with role("row", warps=1):
        i = block * N // N  #!
        store(y[i, :], load(x[i, :], vector=1, fill=0.0), vector=1)
""",
            fixed=MENDED,
            dims={"M": 2097152, "N": 1056},
            records=("I01",),
        ),
        Good("a coordinate per axis", MENDED, dims={"M": 2097152, "N": 1056}),
    )

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        instance = facts.instance
        for role in instance.roles:
            ranges: dict[str, Range | None] = {
                k: (v, v) for k, v in instance.values.items() if isinstance(v, int)
            }
            last = instance.blocks - 1
            ranges |= {"block": (0, last), "blocks": (last + 1, last + 1), "warp": (0, role.warps - 1)}
            ranges["warpgroup"] = (0, max(0, role.warps // 4 - 1))
            yield from self._block(role.node.body, ranges)

    def _block(self, body: tuple[n.Stmt, ...], ranges: dict[str, Range | None]) -> Iterator[Diagnostic]:
        for stmt in body:
            for expr in n.expressions(stmt):
                for node in n.walk_expr(expr):
                    if isinstance(node, n.Binary) and (found := _range(node, ranges)) is not None:
                        inner = (_range(node.left, ranges), _range(node.right, ranges))
                        if not _fits(found) and all(r is not None and _fits(r) for r in inner):
                            reached = found[1] if found[1] > HIGHEST else found[0]
                            yield self.report(node.span, "computed in 32 bits", reached=reached)
            if isinstance(stmt, n.For):
                start, stop = _range(stmt.start, ranges), _range(stmt.stop, ranges)
                known = start is not None and stop is not None
                ranges[stmt.variable] = (start[0], max(start[0], stop[1] - 1)) if known else None
                ranges |= dict.fromkeys(_assigned(stmt.body))
            elif isinstance(stmt, n.Assign):
                one = len(stmt.targets) == 1
                ranges |= {name: _range(stmt.value, ranges) if one else None for name in stmt.targets}
            for inside in n.blocks_of(stmt):
                yield from self._block(inside, ranges)


def _assigned(body: tuple[n.Stmt, ...]) -> Iterator[str]:
    return (name for stmt in n.walk(body) if isinstance(stmt, n.Assign) for name in stmt.targets)


def _fits(value: Range) -> bool:
    return value[0] >= LOWEST and value[1] <= HIGHEST


def _range(expr: n.Expr | n.Range, ranges: dict[str, Range | None]) -> Range | None:
    """The least and greatest value of an integer expression, None where that is not known."""
    match expr:
        case n.Int(value=value):
            return (value, value)
        case n.Name(id=name):
            return ranges.get(name)
        case n.Call(name="min" | "max" | "ceil_div" as name, args=(left, right)):
            pair = (_range(left, ranges), _range(right, ranges))
        case n.Binary(op=op, left=left, right=right):
            pair, name = (_range(left, ranges), _range(right, ranges)), op
        case _:
            return None
    a, b = pair
    return None if a is None or b is None else _combine(name, a, b)


def _combine(op: str, a: Range, b: Range) -> Range | None:
    corners = [(x, y) for x in a for y in b]
    match op:
        case "+":
            return (a[0] + b[0], a[1] + b[1])
        case "-":
            return (a[0] - b[1], a[1] - b[0])
        case "*":
            return (min(x * y for x, y in corners), max(x * y for x, y in corners))
        case "min":
            return (min(a[0], b[0]), min(a[1], b[1]))
        case "max":
            return (max(a[0], b[0]), max(a[1], b[1]))
        case "//" | "ceil_div" if a[0] >= 0 and b[0] > 0:
            return (a[0] // b[1], -(-a[1] // b[0]))
        case "%" if a[0] >= 0 and b[0] > 0:
            return (0, min(a[1], b[1] - 1))
        case "<<" if a[0] >= 0 and b[0] >= 0 and b[1] < 64:
            return (a[0] << b[0], a[1] << b[1])
    return None
