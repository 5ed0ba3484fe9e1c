"""Kernel text -> IR. The text is parsed with `ast` and never executed.

Every construct outside the language gets a diagnostic at its place; hostile text (deep nesting, huge
integers, megabytes) is refused by limits before it can cost anything.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Literal, NoReturn, TypeVar, cast

from cake.diagnostics import Diagnostic, KernelErrors, Source, Span, error
from cake.ir import nodes as n
from cake.ir.limits import MAX_CHARACTERS, MAX_DEPTH, python_tree
from cake.ir.types import STORED

MAX_INTEGER = 2**63 - 1
MAX_STATEMENTS = 4000
MAX_ERRORS = 20

_BINARY: dict[type[ast.operator], n.Binary_op] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
_COMPARE: dict[type[ast.cmpop], n.Compare_op] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
T = TypeVar("T")


def parse(text: str, path: str = "<kernel>") -> n.Kernel:
    """The kernel in `text`. Raises KernelErrors (family `syntax`) naming each place outside the language."""
    source = Source(path, text if len(text) <= MAX_CHARACTERS else "")
    module = python_tree(text, source)
    reader = _Reader(source)
    try:
        kernel = reader.module(module)
    except _Refused:
        kernel = None
    if reader.errors or kernel is None:
        raise KernelErrors(reader.errors, source)
    return kernel


class _Refused(Exception):
    """Stops reading one construct; its diagnostic is already in `errors`."""


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.errors: list[Diagnostic] = []
        self.depth = 0
        self.statements = 0

    # --- places and errors --------------------------------------------------------------------------------

    def span(self, node: ast.AST) -> Span:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None) or column + 1
        return Span(line, self._characters(line, column), end_line, self._characters(end_line, end_column))

    def _characters(self, line: int, column: int) -> int:
        """`ast` counts UTF-8 bytes; people and editors count characters."""
        text = self.source.lines[line - 1] if 0 < line <= len(self.source.lines) else ""
        if text.isascii():
            return column
        return len(text.encode()[:column].decode(errors="ignore"))

    def refuse(self, node: ast.AST, code: str, message: str, help: str = "") -> NoReturn:
        self.errors.append(error(f"syntax/{code}", message, self.span(node), help=help))
        raise _Refused

    def each(self, items: Sequence[ast.AST], read: Callable[[ast.AST], T]) -> tuple[T, ...]:
        """Read every item, gathering the errors of all of them."""
        out: list[T] = []
        failed = False
        for item in items:
            try:
                out.append(read(item))
            except _Refused:
                failed = True
                if len(self.errors) >= MAX_ERRORS:
                    raise
        if failed:
            raise _Refused
        return tuple(out)

    # --- the header ---------------------------------------------------------------------------------------

    def module(self, module: ast.Module) -> n.Kernel:
        functions = [s for s in module.body if isinstance(s, ast.FunctionDef)]
        for stmt in module.body:
            if not isinstance(stmt, ast.FunctionDef) and not _is_docstring(stmt):
                self.refuse(stmt, "outside", "only one @kernel function may stand in a kernel file")
        if len(functions) != 1:
            where = functions[1] if functions else ast.Pass(lineno=1, col_offset=0)
            self.refuse(
                where, "outside", f"a kernel file holds one @kernel function, this one holds {len(functions)}"
            )
        return self.kernel(functions[0])

    def kernel(self, function: ast.FunctionDef) -> n.Kernel:
        arch = self.arch(function)
        args = function.args
        if args.posonlyargs or args.vararg or args.kwarg or args.defaults or function.returns:
            self.refuse(function, "header", "parameters are tensors, then `*`, then constants NAME=value")
        params = self.each(args.args, lambda a: self.param(cast(ast.arg, a)))
        pairs = list(zip(args.kwonlyargs, args.kw_defaults, strict=True))
        constants = tuple(self.constant(arg, default) for arg, default in pairs)
        body, doc = function.body, ""
        if _is_docstring(body[0]):
            doc = str(cast(ast.Constant, cast(ast.Expr, body[0]).value).value)
            body = body[1:]
        self._unique(args.args + args.kwonlyargs)
        return n.Kernel(
            function.name,
            arch,
            params,
            constants,
            self.block(body),
            doc=doc,
            source=self.source,
            span=self.name_of(function),
        )

    def name_of(self, function: ast.FunctionDef) -> Span:
        """The kernel's name in its header: where what concerns the whole kernel is said."""
        start = self.span(function)
        first = start.column + len("def ")
        return Span(start.line, first, start.line, first + len(function.name))

    def _unique(self, args: list[ast.arg]) -> None:
        seen: set[str] = set()
        for arg in args:
            if arg.arg in seen:
                self.refuse(arg, "header", f"`{arg.arg}` is declared twice")
            seen.add(arg.arg)

    def arch(self, function: ast.FunctionDef) -> str:
        shape = 'a kernel starts with @kernel(arch="sm_90a")'
        if len(function.decorator_list) != 1:
            self.refuse(function, "header", shape)
        call = function.decorator_list[0]
        if not (isinstance(call, ast.Call) and _name(call.func) == "kernel" and not call.args):
            self.refuse(call, "header", shape)
        if len(call.keywords) != 1 or call.keywords[0].arg != "arch":
            self.refuse(call, "header", shape)
        value = call.keywords[0].value
        if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
            self.refuse(value, "header", 'arch is a quoted word such as "sm_90a"')
        return value.value

    def param(self, arg: ast.arg) -> n.Param:
        note = arg.annotation
        shape = "a tensor parameter is `x: Global[bf16, M, N]` or `y: GlobalOut[bf16, M, N]`"
        if not (isinstance(note, ast.Subscript) and _name(note.value) in ("Global", "GlobalOut")):
            self.refuse(arg, "header", shape)
        items = note.slice.elts if isinstance(note.slice, ast.Tuple) else [note.slice]
        dtype = self.dtype(items[0])
        axes = self.each(items[1:], lambda e: self.expr(cast(ast.expr, e)))
        for axis, item in zip(axes, items[1:], strict=True):
            if not isinstance(axis, n.Int | n.Name):
                self.refuse(item, "header", "an axis is a dimension's name or an integer")
        if not axes:
            self.refuse(note, "header", "a tensor has at least one axis")
        return n.Param(arg.arg, dtype, axes, _name(note.value) == "GlobalOut", span=self.span(arg))

    def dtype(self, node: ast.AST) -> str:
        name = _name(node)
        if name not in STORED:
            self.refuse(
                node,
                "dtype",
                f"unknown dtype `{name or ast.unparse(node)[:40]}`",
                "one of " + ", ".join(sorted(STORED)),
            )
        return name

    def constant(self, arg: ast.arg, default: ast.expr | None) -> n.Constant:
        if default is None:
            self.refuse(arg, "header", f"the constant `{arg.arg}` needs a value: {arg.arg}=...")
        choices: tuple[int | float, ...] = ()
        note = arg.annotation
        if note is not None:
            if not (
                isinstance(note, ast.Call)
                and _name(note.func) == "choice"
                and note.args
                and not note.keywords
            ):
                self.refuse(note, "header", "a constant's domain is `choice(a, b, ...)`")
            choices = self.each(note.args, lambda e: self.number(cast(ast.expr, e)))
        value = self.number(default)
        if choices and value not in choices:
            self.refuse(default, "header", f"{value} is not among the choices of `{arg.arg}`")
        return n.Constant(arg.arg, value, choices, span=self.span(arg))

    def number(self, node: ast.expr) -> int | float:
        value = self.expr(node)
        if isinstance(value, n.Int | n.Float):
            return value.value
        self.refuse(node, "header", "a constant is a literal number")

    # --- statements ---------------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt]) -> tuple[n.Stmt, ...]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.refuse(body[0], "too-deep", f"nested deeper than {MAX_DEPTH} levels")
        try:
            return self.each([s for s in body if not isinstance(s, ast.Pass)], self.stmt)
        finally:
            self.depth -= 1

    def stmt(self, node: ast.AST) -> n.Stmt:
        self.statements += 1
        if self.statements > MAX_STATEMENTS:
            self.refuse(node, "too-long", f"more than {MAX_STATEMENTS} statements")
        span = self.span(node)
        match node:
            case ast.Assign(targets=[target], value=value):
                return self.assign(target, value, span)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value) if type(op) in _BINARY:
                left = n.Name(name, span=self.span(node.target))
                return n.Assign(
                    (name,), n.Binary(_BINARY[type(op)], left, self.expr(value), span=span), span=span
                )
            case ast.Expr(value=ast.Call() as call):
                return self.action(call, span)
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as call, body=body, orelse=[]):
                return self.loop(name, call, body, span)
            case ast.If(test=test, body=body, orelse=orelse):
                return n.If(
                    self.expr(test), self.block(body), self.block(orelse) if orelse else (), span=span
                )
            case ast.With(
                items=[ast.withitem(context_expr=ast.Call() as call, optional_vars=None)], body=body
            ):
                return self.scope(call, body, self._head(node))
        self.refuse(
            node,
            "statement",
            "not a statement of CAKE IR",
            "assignments, calls, `for v in range(...)`, `if`, and `with role|task|one_thread(...)`",
        )

    def _head(self, node: ast.With) -> Span:
        head = node.items[0].context_expr
        whole, call = self.span(node), self.span(head)
        return Span(whole.line, whole.column, call.end_line, call.end_column)

    def assign(self, target: ast.AST, value: ast.expr, span: Span) -> n.Stmt:
        names = [target] if not isinstance(target, ast.Tuple) else target.elts
        for item in names:
            if not isinstance(item, ast.Name):
                self.refuse(item, "statement", "only names can be assigned; memory is written by a primitive")
        targets = tuple(cast(ast.Name, item).id for item in names)
        declared = self.declaration(targets, value, span)
        return declared if declared is not None else n.Assign(targets, self.expr(value), span=span)

    def declaration(self, targets: tuple[str, ...], value: ast.expr, span: Span) -> n.Stmt | None:
        """`Shared[...](swizzle=...)`, `TensorMemory[...](column=...)`, `MBarrier[n](arrivals=...)`."""
        keywords = value.keywords if isinstance(value, ast.Call) else []
        head = value.func if isinstance(value, ast.Call) else value
        base = head.value if isinstance(head, ast.Subscript) else head
        kind = _name(base)
        if kind not in ("Shared", "TensorMemory", "MBarrier"):
            return None
        if len(targets) != 1 or (isinstance(value, ast.Call) and value.args):
            self.refuse(value, "declaration", f"`name = {kind}[...](keyword=value)` declares one name")
        items: list[ast.expr] = []
        if isinstance(head, ast.Subscript):
            items = head.slice.elts if isinstance(head.slice, ast.Tuple) else [head.slice]
        options = {k.arg: self.expr(k.value) for k in keywords}
        if kind == "Shared":
            return self.shared(targets[0], items, options, value, span)
        if kind == "TensorMemory":
            if len(items) < 2 or set(options) != {"column"}:
                self.refuse(value, "declaration", "tensor memory is `TensorMemory[dtype, axes...](column=c)`")
            shape = self.each(items[1:], lambda e: self.expr(cast(ast.expr, e)))
            return n.TensorMemory(targets[0], self.dtype(items[0]), shape, options["column"], span=span)
        if len(items) > 1 or set(options) != {"arrivals"}:
            self.refuse(
                value, "declaration", "an mbarrier is `MBarrier(arrivals=k)` or `MBarrier[n](arrivals=k)`"
            )
        count = self.expr(items[0]) if items else None
        return n.MBarrier(targets[0], count, options["arrivals"], span=span)

    def shared(
        self, name: str, items: list[ast.expr], options: dict[str | None, n.Expr], value: ast.expr, span: Span
    ) -> n.Shared:
        if len(items) < 2 or set(options) - {"swizzle", "overlay", "offset"}:
            message = "a shared buffer is `Shared[dtype, axes...](swizzle=0|32|64|128)`"
            self.refuse(
                value, "declaration", message, "with overlay=other, offset=bytes it lies over another"
            )
        overlay, offset = options.get("overlay"), options.get("offset")
        if not (overlay is None or isinstance(overlay, n.Name)) or (offset is not None and overlay is None):
            message = "an overlay is `overlay=name` of a buffer, and then `offset=bytes` in it"
            self.refuse(value, "declaration", message)
        shape = self.each(items[1:], lambda e: self.expr(cast(ast.expr, e)))
        dtype = self.dtype(items[0])
        return n.Shared(name, dtype, shape, options.get("swizzle"), overlay, offset, span=span)

    def action(self, call: ast.Call, span: Span) -> n.Stmt:
        name = _name(call.func)
        if name in ("require", "grid", "cluster") and call.keywords:
            self.refuse(call, "statement", f"{name} takes no keywords")
        if name == "require":
            return n.Require(self.each(call.args, lambda e: self.expr(cast(ast.expr, e))), span=span)
        if name in ("grid", "cluster"):
            if len(call.args) != 1:
                self.refuse(call, "statement", f"{name} takes the number of CTAs")
            size = self.expr(call.args[0])
            return n.Grid(size, span=span) if name == "grid" else n.Cluster(size, span=span)
        value = self.expr(call)
        assert isinstance(value, n.Call)
        return n.Do(value, span=span)

    def loop(self, name: str, call: ast.Call, body: Sequence[ast.stmt], span: Span) -> n.Stmt:
        kind = _name(call.func)
        if kind not in ("range", "unroll") or call.keywords or not 1 <= len(call.args) <= 3:
            self.refuse(
                call, "statement", "a loop runs over range(...) or unroll(...), with one to three bounds"
            )
        bounds = self.each(call.args, lambda e: self.expr(cast(ast.expr, e)))
        start: n.Expr = bounds[0] if len(bounds) > 1 else n.Int(0)
        stop = bounds[1] if len(bounds) > 1 else bounds[0]
        step: n.Expr = bounds[2] if len(bounds) > 2 else n.Int(1)
        whole = self.span(call)
        head = Span(span.line, span.column, whole.end_line, whole.end_column)
        return n.For(name, start, stop, step, self.block(body), kind == "unroll", span=head)

    def scope(self, call: ast.Call, body: Sequence[ast.stmt], span: Span) -> n.Stmt:
        kind = _name(call.func)
        words = [
            a.value if isinstance(a, ast.Constant) and isinstance(a.value, str) else None for a in call.args
        ]
        options = {k.arg: k.value for k in call.keywords}
        if kind == "task" and len(words) == 1 and words[0] is not None and not options:
            return n.Task(words[0], self.block(body), span=span)
        if kind == "one_thread" and not options and words in ([], ["role"], ["warpgroup"], ["warp"]):
            scope = cast(Literal["role", "warpgroup", "warp"], words[0] if words else "role")
            return n.OneThread(scope, self.block(body), span=span)
        if (
            kind == "role"
            and len(words) == 1
            and words[0] is not None
            and set(options) in ({"warps"}, {"warpgroups"})
        ):
            ((key, count),) = options.items()
            return n.Role(words[0], self.expr(count), key == "warpgroups", self.block(body), span=span)
        self.refuse(
            call,
            "statement",
            "not a scope of CAKE IR",
            'role("name", warps=n | warpgroups=n), task("name") or one_thread("role" | "warpgroup" | "warp")',
        )

    # --- expressions --------------------------------------------------------------------------------------

    def expr(self, node: ast.expr) -> n.Expr:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.refuse(node, "too-deep", f"nested deeper than {MAX_DEPTH} levels")
        try:
            return self._expr(node)
        finally:
            self.depth -= 1

    def _expr(self, node: ast.expr) -> n.Expr:
        span = self.span(node)
        match node:
            case ast.Constant(value=value):
                return self.literal(node, value, span)
            case ast.Name(id="inf"):
                return n.Float(float("inf"), span=span)
            case ast.Name(id=name):
                return n.Name(name, span=span)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.negate(self.expr(operand), span)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return n.Unary("not", self.expr(operand), span=span)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return n.Binary(_BINARY[type(op)], self.expr(left), self.expr(right), span=span)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return n.Compare(_COMPARE[type(op)], self.expr(left), self.expr(right), span=span)
            case ast.BoolOp(op=op, values=[first, *rest]):
                out = self.expr(first)
                for item in rest:
                    word: Literal["and", "or"] = "and" if isinstance(op, ast.And) else "or"
                    out = n.Logic(word, out, self.expr(item), span=span)
                return out
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return n.Select(self.expr(test), self.expr(body), self.expr(orelse), span=span)
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                items = index.elts if isinstance(index, ast.Tuple) else [index]
                return n.Index(name, self.each(items, self.item), span=span)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                return self.call(name, args, keywords, span)
        self.refuse(node, "expression", f"not an expression of CAKE IR: {ast.unparse(node)[:60]}")

    def negate(self, operand: n.Expr, span: Span) -> n.Expr:
        if isinstance(operand, n.Float):
            return n.Float(-operand.value, span=span)
        if isinstance(operand, n.Int):
            return n.Int(-operand.value, span=span)
        return n.Unary("-", operand, span=span)

    def literal(self, node: ast.Constant, value: object, span: Span) -> n.Expr:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            self.refuse(node, "literal", f"not a literal of CAKE IR: {str(value)[:40]}")
        if isinstance(value, str):
            if len(value) > 200 or not value.isprintable():
                self.refuse(node, "literal", "a quoted word is at most 200 printable characters")
            return n.Text(value, span=span)
        if isinstance(value, float):
            if not isfinite(value):
                self.refuse(node, "literal", "a float literal beyond the range of float64")
            return n.Float(value, span=span)
        if value > MAX_INTEGER:
            self.refuse(node, "literal", "an integer literal beyond 63 bits")
        return n.Int(value, span=span)

    def item(self, node: ast.AST) -> n.Expr | n.Range:
        if not isinstance(node, ast.Slice):
            return self.expr(cast(ast.expr, node))
        span = self.span(node)
        if node.lower is None and node.upper is None and node.step is None:
            return n.Range(None, None, span=span)
        window = isinstance(node.upper, ast.UnaryOp) and isinstance(node.upper.op, ast.UAdd)
        if node.lower is None or node.step is not None or not window:
            self.refuse(node, "window", "a window is `start:+size` or `:`", "write the size after `:+`")
        size = cast(ast.UnaryOp, node.upper).operand
        return n.Range(self.expr(node.lower), self.expr(size), span=span)

    def call(self, name: str, args: list[ast.expr], keywords: list[ast.keyword], span: Span) -> n.Call:
        for arg in args:
            if isinstance(arg, ast.Starred):
                self.refuse(arg, "expression", "no `*` in calls")
        pairs = []
        for keyword in keywords:
            if keyword.arg is None:
                self.refuse(keyword.value, "expression", "no `**` in calls")
            pairs.append((keyword.arg, self.expr(keyword.value)))
        return n.Call(name, self.each(args, lambda e: self.expr(cast(ast.expr, e))), tuple(pairs), span=span)


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_docstring(stmt: ast.stmt) -> bool:
    return (
        isinstance(stmt, ast.Expr)
        and isinstance(stmt.value, ast.Constant)
        and isinstance(stmt.value.value, str)
    )
