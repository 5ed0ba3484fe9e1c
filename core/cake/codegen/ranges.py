"""Ranges of an instance's integers: what needs 64 bits, and which windows lie inside their tensors for sure.

One range a name and role, whatever the path (flow-insensitive). Names that loops count up are bounded by the
trips of the loops around; what stays unbounded is ANY.
"""

from __future__ import annotations

from cake.ir import nodes as n
from cake.ir.instance import Instance, RoleInfo

Range = tuple[int, int]
"""Least and greatest value."""
ANY: Range = (-(2**63), 2**63 - 1)


def fits_int(span: Range) -> bool:
    """Whether a C++ int holds all of it."""
    return span[0] >= -(2**31) and span[1] < 2**31


def join(a: Range | None, b: Range | None) -> Range | None:
    """The least range that holds both; None is the empty one."""
    if a is None or b is None:
        return a or b
    return min(a[0], b[0]), max(a[1], b[1])


class Ranges:
    """The ranges of one role's names, or of the kernel's top level."""

    def __init__(self, instance: Instance, role: RoleInfo | None) -> None:
        self.instance = instance
        warps = role.warps if role else instance.warps
        self.known: dict[str, Range] = {
            name: (int(value), int(value))
            for name, value in instance.values.items()
            if not isinstance(value, float)
        }
        self.known |= {
            "block": (0, instance.blocks - 1),
            "blocks": (instance.blocks, instance.blocks),
            "rank": (0, instance.cluster - 1),
            "warp": (0, warps - 1),
            "warpgroup": (0, max(0, warps // 4 - 1)),
        }
        self.starts: dict[str, Range | None] = {}
        self.growth: dict[str, dict[int, Range]] = {}
        top = tuple(s for s in instance.kernel.body if not isinstance(s, n.Role))
        self.solve((*top, *role.node.body) if role else top)

    def of(self, expr: n.Expr) -> Range:
        """What an integer expression may be."""
        return self.reach(expr) or ANY

    def solve(self, body: tuple[n.Stmt, ...]) -> None:
        """Grow from nothing until nothing changes; what still changes then is unbounded."""
        names = 1 + sum(isinstance(s, n.Assign | n.For) for s in n.walk(body))
        for turn in range(2 * names + 2):
            before = dict(self.known)
            self.visit(body, 1)
            changed = [name for name, span in self.known.items() if before.get(name) != span]
            if not changed:
                return
            if turn > names:
                self.known |= dict.fromkeys(changed, ANY)

    def visit(self, body: tuple[n.Stmt, ...], trips: int) -> None:
        for stmt in body:
            if isinstance(stmt, n.Assign):
                self.assign(stmt, trips)
            if isinstance(stmt, n.For):
                self.visit(stmt.body, trips * self.loop(stmt))
                continue
            for block in n.blocks_of(stmt):
                self.visit(block, trips)

    def loop(self, stmt: n.For) -> int:
        """Give the variable its range; the most trips there can be."""
        start, stop, step = (self.reach(e) for e in (stmt.start, stmt.stop, stmt.step))
        if start is None or stop is None or step is None:
            return 0
        if step[0] <= 0:
            self.meet(stmt.variable, (min(start[0], stop[0]), start[1]))
            return max(0, start[1] - stop[0])
        if stop[1] <= start[0]:
            return 0
        self.meet(stmt.variable, (start[0], max(start[0], stop[1] - 1)))
        return -(-(stop[1] - start[0]) // step[0])

    def assign(self, stmt: n.Assign, trips: int) -> None:
        if len(stmt.targets) == 2 and isinstance(stmt.value, n.Call):
            count = self.reach(stmt.value.args[1])
            self.meet(stmt.targets[0], count and (0, max(0, count[1] - 1)))
            self.meet(stmt.targets[1], (0, 1))
            return
        (name,) = stmt.targets
        match stmt.value:
            case n.Call(args=(_, lower, upper)) if self.reads(stmt.value):
                least, most = self.reach(lower), self.reach(upper)
                self.meet(name, None if least is None or most is None else (least[0], most[1]))
            case n.Binary(op="+" | "-" as op, left=n.Name(id=left), right=right) if left == name:
                by = self.reach(right)
                if by is not None:
                    low, high = by if op == "+" else (-by[1], -by[0])
                    steps = self.growth.setdefault(name, {})
                    steps[id(stmt)] = (trips * min(0, low), trips * max(0, high))
                self.meet(name, None)
            case value:
                self.meet(name, self.reach(value))

    def reads(self, value: n.Expr) -> bool:
        """Whether a call yields a number from memory, between its last two operands."""
        return self.instance.is_primitive(value) and self.instance.primitive(value).scalar

    def meet(self, name: str, span: Range | None) -> None:
        """The name also takes the values of `span`, and what its counting adds to them."""
        start = self.starts[name] = join(self.starts.get(name), span)
        if start is None or self.known.get(name) == ANY:
            return
        steps = self.growth.get(name, {}).values()
        low, high = start[0] + sum(s[0] for s in steps), start[1] + sum(s[1] for s in steps)
        self.known[name] = _clamp((low, high))

    def reach(self, expr: n.Expr) -> Range | None:
        """As `of`; None while nothing is known to reach the expression."""
        match expr:
            case n.Int(value=value):
                return value, value
            case n.Name(id=name):
                return self.known.get(name)
            case n.Compare() | n.Logic() | n.Unary(op="not"):
                return 0, 1
            case n.Unary(operand=operand):
                inner = self.reach(operand)
                return inner and (-inner[1], -inner[0])
            case n.Select(then=a, otherwise=b):
                return join(self.reach(a), self.reach(b))
            case n.Binary(op=op, left=a, right=b):
                return self.combine(op, a, b)
            case n.Call(name=name, args=(a, b)):
                return self.combine(name, a, b)
        return ANY

    def combine(self, op: str, left: n.Expr, right: n.Expr) -> Range | None:
        a, b = self.reach(left), self.reach(right)
        return None if a is None or b is None else _clamp(_combine(op, a, b))


def _clamp(span: Range) -> Range:
    return span if ANY[0] <= span[0] and span[1] <= ANY[1] else ANY


def _combine(op: str, a: Range, b: Range) -> Range:
    """The range of `a op b`. `//`, `%` and ceil_div are defined for operands that are not negative alone."""
    natural = (max(0, a[0]), max(0, a[1]))
    divisor = (max(1, b[0]), max(1, b[1]))
    match op:
        case "+":
            return a[0] + b[0], a[1] + b[1]
        case "-":
            return a[0] - b[1], a[1] - b[0]
        case "*":
            products = [x * y for x in a for y in b]
            return min(products), max(products)
        case "//":
            return natural[0] // divisor[1], natural[1] // divisor[0]
        case "ceil_div":
            return -(-natural[0] // divisor[1]), -(-natural[1] // divisor[0])
        case "%":
            return 0, min(natural[1], divisor[1] - 1)
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case ">>" if a[0] >= 0 and b[0] >= 0 and b[1] < 64:
            return a[0] >> b[1], a[1] >> b[0]
        case "<<" if a[0] >= 0 and b[0] >= 0 and b[1] < 64:
            return a[0] << b[0], a[1] << b[1]
        case "&" if a[0] >= 0 or b[0] >= 0:
            return 0, min(x[1] for x in (a, b) if x[0] >= 0)
        case "|" | "^" if a[0] >= 0 and b[0] >= 0:
            return 0, (1 << max(a[1], b[1]).bit_length()) - 1
    return ANY
