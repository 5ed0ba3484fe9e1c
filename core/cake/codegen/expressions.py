"""C++ text of scalar expressions, with no more parentheses than it needs.

Texts put spaces around binary operators and nowhere else, so that their precedence can be read off them.
"""

from __future__ import annotations

from collections.abc import Callable

from cake.codegen.pieces import number
from cake.codegen.ranges import Ranges, fits_int
from cake.ir import nodes as n
from cake.ir.types import FLOAT, INT, Type

_LEVELS = {"?": 1, ":": 1, "||": 2, "&&": 3, "|": 4, "^": 5, "&": 6, "==": 7, "!=": 7}
_LEVELS |= {"<": 8, "<=": 8, ">": 8, ">=": 8, "<<": 9, ">>": 9, "+": 10, "-": 10, "*": 11, "/": 11, "%": 11}
LOGIC_OR, LOGIC_AND, SHIFT, ADDITIVE, MULTIPLICATIVE, UNARY, ATOM = 2, 3, 9, 10, 11, 12, 13
_OPERATORS = {"//": "/", "and": "&&", "or": "||"}


def level(text: str) -> int:
    """Precedence of the loosest operator outside parentheses: `a * b + c` is ADDITIVE, a word is an ATOM."""
    least = UNARY if text[:1] in ("-", "!", "~") else ATOM
    depth = 0
    for word in text.split(" "):
        if depth == 0:
            least = min(least, _LEVELS.get(word, ATOM))
        depth += word.count("(") + word.count("[") - word.count(")") - word.count("]")
    return least


def group(text: str, least: int) -> str:
    """`text`, parenthesized where an operator in it binds more loosely than `least`."""
    return text if level(text) >= least else f"({text})"


def summands(text: str) -> list[str]:
    """The terms of a sum; a text of another kind is its only term."""
    if text == "0":
        return []
    if level(text) != ADDITIVE:
        return summands(text[1:-1]) if enclosed(text) else [text]
    terms, term, depth = [], "", 0
    for word in text.split(" "):
        if word == "+" and depth == 0:
            terms.append(term)
            term = ""
            continue
        depth += word.count("(") + word.count("[") - word.count(")") - word.count("]")
        term = f"{term} {word}" if term else word
    return [*terms, term]


def total(terms: list[str]) -> str:
    """The sum of terms; literals are added up and stand last."""
    literal = sum(int(term) for term in terms if term.isdigit())
    words = [group(term, ADDITIVE) for term in terms if not term.isdigit()]
    return " + ".join([*words, *([str(literal)] if literal or not words else [])])


def enclosed(text: str) -> bool:
    """Whether one pair of parentheses holds all of `text`."""
    if not (text.startswith("(") and text.endswith(")")):
        return False
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and position < len(text) - 1:
            return False
    return True


def integer(value: int) -> str:
    """A literal of type int, or of type long long where int is too narrow."""
    return str(int(value)) if fits_int((value, value)) else f"{value}LL"


class Scalars:
    """Translates scalar expressions. `name` gives the C++ text of an author's name; `ranges` say where
    arithmetic needs 64 bits, as the machine computes exactly."""

    def __init__(self, name: Callable[[str], str], ranges: Ranges, types: Callable[[n.Expr], Type]) -> None:
        self.name = name
        self.ranges = ranges
        self.types = types

    def text(self, expr: n.Expr) -> str:
        match expr:
            case n.Int(value=value):
                return integer(value)
            case n.Float(value=value):
                return number(value)
            case n.Name(id=name):
                return self.name(name)
            case n.Unary(op=op, operand=operand):
                return f"{'-' if op == '-' else '!'}{group(self.text(operand), ATOM)}"
            case n.Binary(op="/", left=left, right=right):
                return f"{self.as_float(left)} / {self.as_float(right)}"
            case n.Binary(op=op, left=left, right=right):
                return self.binary(_OPERATORS.get(op, op), self.widened(expr, left), self.text(right))
            case n.Compare(op=op, left=left, right=right):
                return self.binary(op, self.text(left), self.text(right))
            case n.Logic(op=op, left=left, right=right):
                # Compilers warn about `a && b || c`: parentheses stay around an `and` in an `or`.
                least = LOGIC_AND + 1 if op == "or" else LOGIC_AND
                sides = (group(self.text(side), least) for side in (left, right))
                return f" {_OPERATORS[op]} ".join(sides)
            case n.Select(condition=condition, then=then, otherwise=otherwise):
                sides = (group(self.text(e), LOGIC_OR) for e in (condition, then, otherwise))
                return "{} ? {} : {}".format(*sides)
            case n.Call(name="ceil_div", args=(a, b)):
                top, bottom = self.widened(expr, a), group(self.text(b), UNARY)
                return f"({group(top, ADDITIVE)} + {bottom} - 1) / {bottom}"
            case n.Call(name="min" | "max" as name, args=(a, b)):
                wide = self.wide(a) or self.wide(b)
                sides = (
                    self.cast(self.text(e)) if wide and not self.wide(e) else self.text(e) for e in (a, b)
                )
                return f"{name}({', '.join(sides)})"
        raise AssertionError(f"not a scalar: {expr!r}")

    def binary(self, op: str, left: str, right: str) -> str:
        """`left op right` of left-associative operators."""
        own = _LEVELS[op]
        return f"{group(left, own)} {op} {group(right, own + 1)}"

    def as_float(self, expr: n.Expr) -> str:
        text = self.text(expr)
        return f"static_cast<float>({text})" if self.types(expr) != FLOAT else group(text, UNARY)

    def wide(self, expr: n.Expr) -> bool:
        """Whether the C++ expression has 64 bits: a name or a result in it needs them."""
        if self.types(expr) != INT:
            return False
        inner = [e for e in n.walk_expr(expr) if not isinstance(e, n.Range)]
        return any(self.types(e) == INT and not fits_int(self.ranges.of(e)) for e in inner)

    def widened(self, expr: n.Expr, left: n.Expr) -> str:
        """The left operand of `expr`, cast where the result needs 64 bits and no operand has them."""
        text = self.text(left)
        if self.types(expr) != INT or fits_int(self.ranges.of(expr)) or self.wide(left):
            return text
        return self.cast(text)

    def cast(self, text: str) -> str:
        return f"static_cast<long long>({text})"
