"""Types of expressions: names, arithmetic, windows, and calls bound to primitives that judge them legal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from cake.diagnostics import Diagnostic, Span, error
from cake.ir import nodes as n
from cake.ir.arch import admits
from cake.ir.evaluate import HELPERS, EvaluationError, evaluate
from cake.ir.instance import Instance
from cake.ir.types import (
    BOOL,
    DTYPES,
    FLOAT,
    INT,
    BarrierType,
    DType,
    DTypeType,
    FragmentType,
    RegionType,
    ScalarType,
    TextType,
    Type,
    describe,
)
from cake.kinds.primitive import REQUIRED, Operand, Parameter, Primitive, Refusal, Scope, Site

MAX_ELEMENTS = 2048
"""Elements of one fragment a thread: far beyond any register file, and still cheap to judge."""

BUILTINS = ("block", "blocks", "rank", "warp", "warpgroup", "remote")
_KIND_WORDS = {
    "fragment": "a fragment",
    "shared": "a window of shared memory",
    "tensor": "a window of tensor memory",
    "bool": "a condition",
    "global": "a window of a global tensor",
    "barrier": "an mbarrier",
    "remote": "a window of shared memory in another CTA",
    "remote_barrier": "an mbarrier of another CTA",
    "int": "an integer",
    "float": "a number",
    "text": "a quoted word",
    "dtype": "a dtype",
}


class Refused(Exception):
    """One statement failed; its diagnostic is recorded."""


class Expressions:
    """Types expressions in nested scopes and records diagnostics; statements build on it."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.errors: list[Diagnostic] = []
        self.scopes: list[dict[str, Type]] = [{}]
        self.frozen: set[str] = set()
        self.scope = Scope("", instance.warps)
        self.poisoned: set[str] = set()
        self.lets: set[str] = set()
        self.elected_from = 0
        self.operators = {
            symbol: (name, primitive)
            for primitive in instance.primitives.values()
            for symbol, name in primitive.operators.items()
        }

    # --- helpers ------------------------------------------------------------------------------------------

    def fail(self, code: str, message: str, span: Span, help: str = "") -> Refused:
        self.errors.append(error(code, message, span, help=help))
        return Refused()

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.scopes.append({})
        try:
            yield
        finally:
            self.scopes.pop()

    def look_up(self, name: str) -> Type | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    # --- expressions --------------------------------------------------------------------------------------

    def expect(self, expr: n.Expr, kind: Type, what: str) -> None:
        got = self.expr(expr)
        if got != kind:
            found = describe(got) if got else "no value"
            raise self.fail("type/operand", f"{what} must be {describe(kind)}, this is {found}", expr.span)

    def constant(self, expr: n.Expr, what: str) -> int:
        try:
            value = evaluate(expr, self.instance.values)
        except EvaluationError as e:
            raise self.fail(
                "type/not-constant", f"{what} must be known at compile time: {e.message}", e.span
            ) from None
        if not isinstance(value, int):
            raise self.fail("type/not-constant", f"{what} must be an integer", expr.span)
        return value

    def expr(self, expr: n.Expr, targets: tuple[str, ...] = ()) -> Type | None:
        kind = self._expr(expr, targets)
        if kind is not None:
            self.instance.types[id(expr)] = kind
        return kind

    def value(self, expr: n.Expr) -> Type:
        kind = self.expr(expr)
        if kind is None:
            raise self.fail("type/no-value", f"`{n_text(expr)}` yields no value", expr.span)
        return kind

    def _expr(self, expr: n.Expr, targets: tuple[str, ...]) -> Type | None:
        match expr:
            case n.Int():
                return INT
            case n.Float():
                return FLOAT
            case n.Text():
                return TextType()
            case n.Name(id=name):
                return self.name(name, expr.span)
            case n.Unary(op=op, operand=operand):
                return self.unary(expr, op, operand)
            case n.Binary(left=left, right=right):
                return self.binary(expr, self.value(left), self.value(right))
            case n.Compare(op=op, left=left, right=right):
                if any(isinstance(self.value(side), FragmentType) for side in (left, right)):
                    return self.operator(expr, op, (left, right))
                self._scalars(expr, left, right)
                return BOOL
            case n.Logic(left=left, right=right):
                self.expect(left, BOOL, "an operand of and/or")
                self.expect(right, BOOL, "an operand of and/or")
                return BOOL
            case n.Select(condition=condition, then=then, otherwise=otherwise):
                self.expect(condition, BOOL, "the condition")
                return self._scalars(expr, then, otherwise)
            case n.Index():
                return self.index(expr)
            case n.Call(name=name) if name in HELPERS:
                return self.helper(expr)
            case n.Call(name="remote"):
                return self.remote(expr)
            case n.Call():
                return self.call(expr, targets)
        raise AssertionError(f"unknown expression {expr!r}")

    def name(self, name: str, span: Span) -> Type:
        kind = self.look_up(name)
        if kind is not None:
            return kind
        if name in self.instance.buffers:
            buffer = self.instance.buffers[name]
            return RegionType(buffer, buffer.shape, buffer.shape)
        if name in self.instance.barriers:
            return self.instance.barriers[name]
        if name in DTYPES:
            return DTypeType(DType(name))
        if name in self.poisoned:
            raise Refused
        known = (
            {k for scope in self.scopes for k in scope}
            | set(self.instance.buffers)
            | set(self.instance.barriers)
        )
        near = get_close_matches(name, sorted(known), 1)
        if name in BUILTINS:
            raise self.fail("type/unknown-name", f"`{name}` has no meaning in this role", span)
        raise self.fail(
            "type/unknown-name", f"unknown name `{name}`", span, f"did you mean `{near[0]}`?" if near else ""
        )

    def _scalars(self, expr: n.Expr, left: n.Expr, right: n.Expr) -> ScalarType:
        kinds = (self.value(left), self.value(right))
        for kind, side in zip(kinds, (left, right), strict=True):
            if not isinstance(kind, ScalarType):
                raise self.fail("type/operand", f"expected a scalar, this is {describe(kind)}", side.span)
        if BOOL in kinds and kinds[0] != kinds[1]:
            raise self.fail("type/operand", "a condition cannot stand beside a number", expr.span)
        return FLOAT if FLOAT in kinds else INT if INT in kinds else BOOL

    def unary(self, expr: n.Unary, op: str, operand: n.Expr) -> Type | None:
        kind = self.value(operand)
        if isinstance(kind, FragmentType) and op == "-":
            return self.operator(expr, "neg", (operand,))
        wanted = BOOL if op == "not" else kind
        if kind != wanted or not isinstance(kind, ScalarType) or (op == "-" and kind == BOOL):
            raise self.fail("type/operand", f"`{op}` does not apply to {describe(kind)}", operand.span)
        return kind

    def binary(self, expr: n.Binary, left: Type, right: Type) -> Type | None:
        if isinstance(left, FragmentType) or isinstance(right, FragmentType):
            return self.operator(expr, expr.op, (expr.left, expr.right))
        for kind, side in ((left, expr.left), (right, expr.right)):
            if kind not in (INT, FLOAT):
                raise self.fail("type/operand", f"`{expr.op}` does not apply to {describe(kind)}", side.span)
        both_int = left == INT and right == INT
        if expr.op not in ("+", "-", "*", "/") and not both_int:
            raise self.fail("type/operand", f"`{expr.op}` needs integers", expr.span)
        return INT if both_int and expr.op != "/" else FLOAT

    def operator(self, expr: n.Expr, symbol: str, args: tuple[n.Expr, ...]) -> Type | None:
        if symbol not in self.operators:
            raise self.fail("type/operand", f"`{symbol}` has no meaning on fragments", expr.span)
        name, primitive = self.operators[symbol]
        return self.bind(expr, n.Call(name, args, span=expr.span), primitive, ())

    def helper(self, call: n.Call) -> Type:
        if call.name == "ring":
            raise self.fail("type/assign", "ring yields two values: `s, parity = ring(j, STAGES)`", call.span)
        if call.keywords or len(call.args) != HELPERS[call.name]:
            raise self.fail("type/arguments", f"{call.name} takes {HELPERS[call.name]} arguments", call.span)
        for arg in call.args:
            self.expect(arg, INT, f"an argument of {call.name}")
        return INT

    def remote(self, call: n.Call) -> Type:
        """`remote(x, r)`: the window or mbarrier x of shared memory, in CTA r of the cluster."""
        if call.keywords or len(call.args) != 2:
            message = "remote takes a window of shared memory or an mbarrier, and the rank of a CTA"
            raise self.fail("type/arguments", message, call.span)
        if self.instance.cluster == 1:
            message = "without a cluster there is no other CTA to reach"
            raise self.fail("type/remote", message, call.span, "declare `cluster(n)`")
        what, rank = call.args
        kind = self.value(what)
        self.expect(rank, INT, "the rank of a CTA")
        here = isinstance(what, n.Name | n.Index)
        if here and isinstance(kind, RegionType) and kind.buffer.space == "shared":
            return replace(kind, remote=True)
        if here and isinstance(kind, BarrierType) and kind.indexed:
            return replace(kind, remote=True)
        message = (
            f"only shared memory and single mbarriers are reached in other CTAs, this is {describe(kind)}"
        )
        raise self.fail("type/remote", message, what.span)

    # --- windows ------------------------------------------------------------------------------------------

    def index(self, expr: n.Index) -> Type:
        base, items = expr.base, expr.items
        if base in self.instance.barriers:
            return self.barrier(expr, self.instance.barriers[base])
        buffer = self.instance.buffers.get(base)
        if buffer is None:
            kind = self.name(base, expr.span)
            raise self.fail("type/index", f"`{base}` is {describe(kind)} and has no windows", expr.span)
        if len(items) > len(buffer.shape):
            raise self.fail(
                "type/index", f"`{base}` has {len(buffer.shape)} axes, not {len(items)}", expr.span
            )
        window: list[int] = []
        shape: list[int] = []
        for axis, extent in enumerate(buffer.shape):
            item = items[axis] if axis < len(items) else n.Range(None, None)
            if not isinstance(item, n.Range):
                self.expect(item, INT, "an index")
                window.append(1)
                continue
            size = extent
            if item.start is not None and item.size is not None:
                self.expect(item.start, INT, "the start of a window")
                self.expect(item.size, INT, "the size of a window")
                size = self.constant(item.size, "the size of a window")
            if size <= 0 or (buffer.space != "global" and size > extent):
                raise self.fail(
                    "type/index",
                    f"a window of {size} does not fit axis {axis} of `{base}` ({extent})",
                    item.span,
                )
            window.append(size)
            shape.append(size)
        return RegionType(buffer, tuple(window), tuple(shape))

    def barrier(self, expr: n.Index, barrier: BarrierType) -> Type:
        if barrier.indexed or len(expr.items) != 1 or isinstance(expr.items[0], n.Range):
            raise self.fail(
                "type/index",
                f"{describe(barrier)} is used as `{barrier.name}[i]`, one of an array",
                expr.span,
            )
        self.expect(expr.items[0], INT, "an index")
        return replace(barrier, indexed=True)

    # --- calls --------------------------------------------------------------------------------------------

    def call(self, call: n.Call, targets: tuple[str, ...]) -> Type | None:
        primitive = self.instance.primitives.get(call.name)
        if primitive is None:
            near = get_close_matches(call.name, sorted([*self.instance.primitives, *HELPERS]), 1)
            hint = f"did you mean `{near[0]}`?" if near else "`cake plugins` lists the primitives"
            raise self.fail(
                "type/unknown-primitive", f"no primitive is called `{call.name}`", call.span, hint
            )
        return self.bind(call, call, primitive, targets)

    def bind(self, expr: n.Expr, call: n.Call, primitive: Primitive, targets: tuple[str, ...]) -> Type | None:
        operands = self.operands(call, primitive)
        instance = self.instance
        site = Site(call, operands, instance.arch, self.scope, targets, cluster=instance.cluster)
        if not admits(primitive.archs, self.instance.arch):
            message = f"`{call.name}` needs {primitive.archs}, the target is {self.instance.arch}"
            raise self.fail("arch/unsupported", message, call.span)
        if primitive.collective and self.scope.elected:
            message = f"`{call.name}` is executed by whole warps and cannot run in one thread"
            raise self.fail("type/collective", message, call.span, "move it out of one_thread()")
        if primitive.scalar and len(targets) != 1:
            message = f"`{call.name}` is given a name before it is used"
            raise self.fail("type/assign", message, call.span, f"n = {call.name}(...)")
        if primitive.single and not self.scope.elected:
            message = f"`{call.name}` is issued by one thread, here every lane would issue it"
            raise self.fail("type/one-thread", message, call.span, "put it inside `with one_thread():`")
        try:
            result = primitive.signature(site)
        except Refusal as refusal:
            self.errors.append(refusal.diagnostic)
            raise Refused from None
        self._check_layout(call, result)
        if primitive.in_place:
            self._check_in_place(call, site, primitive.in_place)
        self.instance.sites[id(expr)] = (primitive, replace(site, result=result))
        return result

    def _check_layout(self, call: n.Call, result: Type | None) -> None:
        if not isinstance(result, FragmentType):
            return
        reason = result.layout.refusal(result.shape)
        if reason:
            raise self.fail("type/layout", f"{describe(result)} is impossible: {reason}", call.span)
        if result.registers > MAX_ELEMENTS:
            message = f"a thread would hold {result.registers} elements, over {MAX_ELEMENTS}"
            raise self.fail("res/fragment", message, call.span, "spread the row over more warps or CTAs")
        holders = result.layout.warps
        if holders > 1 and self.scope.warps % holders:
            message = (
                f"{describe(result)} is held by {holders} warps together, the role has {self.scope.warps}"
            )
            raise self.fail("type/layout", message, call.span)

    def _check_in_place(self, call: n.Call, site: Site, name: str) -> None:
        operand = site.operand(name).expr
        if not isinstance(operand, n.Name) or site.targets != (operand.id,):
            given = n_text(operand) if operand is not None else name
            message = f"`{call.name}` works in the registers of `{name}`: assign it back to them"
            raise self.fail("type/in-place", message, call.span, f"{given} = {call.name}(...)")

    def operands(self, call: n.Call, primitive: Primitive) -> Mapping[str, tuple[Operand, ...]]:
        bound: dict[str, tuple[Operand, ...]] = {}
        positional = list(call.args)
        keywords = dict(call.keywords)
        for parameter in primitive.parameters:
            if parameter.variadic:
                bound[parameter.name] = tuple(self.operand(call, parameter, e) for e in positional)
                positional = []
            elif positional and parameter.name not in keywords:
                bound[parameter.name] = (self.operand(call, parameter, positional.pop(0)),)
            elif parameter.name in keywords:
                bound[parameter.name] = (self.operand(call, parameter, keywords.pop(parameter.name)),)
            elif parameter.default is REQUIRED:
                raise self.fail(
                    "type/arguments",
                    f"`{call.name}` needs the operand `{parameter.name}`",
                    call.span,
                    usage(call.name, primitive),
                )
            else:
                bound[parameter.name] = (self.default(parameter),)
        if positional or keywords:
            extra = positional[0].span if positional else keywords[next(iter(keywords))].span
            raise self.fail(
                "type/arguments", f"`{call.name}` takes no such operand", extra, usage(call.name, primitive)
            )
        return bound

    def default(self, parameter: Parameter) -> Operand:
        value: Any = parameter.default
        kind: Type = TextType() if isinstance(value, str) else FLOAT if isinstance(value, float) else INT
        return Operand(parameter.name, kind, None, value)

    def operand(self, call: n.Call, parameter: Parameter, expr: n.Expr) -> Operand:
        kind = self.value(expr)
        found = self.kinds(kind)
        if not set(found) & set(parameter.kinds):
            wanted = " or ".join(_KIND_WORDS[k] for k in parameter.kinds)
            message = f"`{parameter.name}` of `{call.name}` must be {wanted}, this is {describe(kind)}"
            raise self.fail(
                "type/operand", message, expr.span, usage(call.name, self.instance.primitives[call.name])
            )
        return Operand(parameter.name, kind, expr, self._known(expr, kind))

    def kinds(self, kind: Type) -> tuple[str, ...]:
        match kind:
            case FragmentType():
                return ("fragment",)
            case RegionType(buffer=buffer, remote=remote):
                return ("remote" if remote else buffer.space,)
            case BarrierType(remote=remote):
                return ("remote_barrier" if remote else "barrier",)
            case ScalarType(kind="int"):
                return ("int", "float")
            case ScalarType(kind="bool"):
                return ("bool",)
            case ScalarType(kind="float"):
                return ("float",)
            case TextType():
                return ("text",)
            case DTypeType():
                return ("dtype",)
        return ()

    def _known(self, expr: n.Expr, kind: Type) -> int | float | str | None:
        if isinstance(kind, TextType):
            return expr.value if isinstance(expr, n.Text) else None
        if not isinstance(kind, ScalarType):
            return None
        try:
            value = evaluate(expr, self.instance.values)
        except EvaluationError:
            return None
        return value if isinstance(value, int | float) else None


def usage(name: str, primitive: Primitive) -> str:
    """`tma_load(destination, source, barrier)`, as help for wrong arguments."""
    words = []
    for p in primitive.parameters:
        word = f"*{p.name}" if p.variadic else p.name
        words.append(word if p.default is REQUIRED or p.variadic else f"{word}={p.default!r}")
    return f"{name}({', '.join(words)})"


def n_text(expr: n.Expr) -> str:
    """The expression for a message, shortened."""
    from cake.ir.printer import expr_text

    text = expr_text(expr)
    return text if len(text) <= 60 else text[:57] + "..."
