"""IR -> the one canonical text, and the content hash that names a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from cake.ir import nodes as n

_INDENT = "    "
_PRECEDENCE = {
    "or": 1,
    "and": 2,
    "not": 3,
    "<": 4,
    "<=": 4,
    ">": 4,
    ">=": 4,
    "==": 4,
    "!=": 4,
    "|": 5,
    "^": 6,
    "&": 7,
    "<<": 8,
    ">>": 8,
    "+": 9,
    "-": 9,
    "*": 10,
    "/": 10,
    "//": 10,
    "%": 10,
    "neg": 11,
}
_ATOM = 12


def print_kernel(kernel: n.Kernel, *, doc: bool = True) -> str:
    """Canonical text; `parse(print_kernel(k)) == k`. Without `doc`, the docstring is left out."""
    tensors = [
        f"{p.name}: {'GlobalOut' if p.output else 'Global'}[{_list((p.dtype, *map(expr_text, p.shape)))}]"
        for p in kernel.params
    ]
    constants = [_constant(c) for c in kernel.constants]
    header = _list([*tensors, *(["*", *constants] if constants else [])])
    lines = [f'@kernel(arch="{kernel.arch}")', f"def {kernel.name}({header}):"]
    if doc and kernel.doc:
        lines.append(f"{_INDENT}{_docstring(kernel.doc)}")
    lines += _block(kernel.body, 1)
    return "\n".join(lines) + "\n"


def content_hash(kernel: n.Kernel) -> str:
    """SHA-256 (hex) of the canonical text without docstring: what the kernel is, not how it was typed."""
    return sha256(print_kernel(kernel, doc=False).encode()).hexdigest()


def _docstring(doc: str) -> str:
    escaped = doc.replace("\\", "\\\\").replace('"', '\\"')
    return f'"""{escaped}"""'


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))


def _constant(constant: n.Constant) -> str:
    domain = f": choice({_list(map(number_text, constant.choices))})" if constant.choices else ""
    return f"{constant.name}{domain}={number_text(constant.default)}"


def number_text(value: int | float) -> str:
    """A literal: `repr`, with infinities as `inf`."""
    return repr(value)


def _block(body: tuple[n.Stmt, ...], level: int) -> list[str]:
    if not body:
        return [_INDENT * level + "pass"]
    return [line for stmt in body for line in _stmt(stmt, level)]


def _stmt(stmt: n.Stmt, level: int) -> list[str]:
    pad = _INDENT * level
    match stmt:
        case n.If(condition=condition, body=body, orelse=orelse):
            out = [f"{pad}if {expr_text(condition)}:", *_block(body, level + 1)]
            return [*out, f"{pad}else:", *_block(orelse, level + 1)] if orelse else out
        case n.For(body=body) | n.OneThread(body=body) | n.Task(body=body) | n.Role(body=body):
            return [f"{pad}{_head(stmt)}:", *_block(body, level + 1)]
    return [pad + _simple(stmt)]


def _head(stmt: n.For | n.OneThread | n.Task | n.Role) -> str:
    match stmt:
        case n.For(variable=variable, start=start, stop=stop, step=step, unroll=unroll):
            bounds = [start, stop, step]
            if step == n.Int(1):
                bounds = [stop] if start == n.Int(0) else [start, stop]
            return f"for {variable} in {'unroll' if unroll else 'range'}({_list(map(expr_text, bounds))})"
        case n.OneThread(scope=scope):
            return "with one_thread()" if scope == "role" else f'with one_thread("{scope}")'
        case n.Task(name=name):
            return f"with task({_quoted(name)})"
        case n.Role(name=name, warps=warps, warpgroups=warpgroups):
            return f"with role({_quoted(name)}, {'warpgroups' if warpgroups else 'warps'}={expr_text(warps)})"


def _simple(stmt: n.Stmt) -> str:
    match stmt:
        case n.Assign(targets=(name,), value=n.Binary(op=op, left=n.Name(id=same), right=right)) if (
            same == name
        ):
            return f"{name} {op}= {expr_text(right)}"
        case n.Assign(targets=targets, value=value):
            return f"{_list(targets)} = {expr_text(value)}"
        case n.Do(call=call):
            return expr_text(call)
        case n.Require(conditions=conditions):
            return f"require({_list(map(expr_text, conditions))})"
        case n.Grid(blocks=blocks):
            return f"grid({expr_text(blocks)})"
        case n.Cluster(size=size):
            return f"cluster({expr_text(size)})"
        case n.Shared(name=name, dtype=dtype, shape=shape):
            given = (("swizzle", stmt.swizzle), ("overlay", stmt.overlay), ("offset", stmt.offset))
            options = [f"{key}={expr_text(value)}" for key, value in given if value is not None]
            option = f"({_list(options)})" if options else ""
            return f"{name} = Shared[{_list((dtype, *map(expr_text, shape)))}]{option}"
        case n.TensorMemory(name=name, dtype=dtype, shape=shape, column=column):
            axes = _list((dtype, *map(expr_text, shape)))
            return f"{name} = TensorMemory[{axes}](column={expr_text(column)})"
        case n.MBarrier(name=name, count=count, arrivals=arrivals):
            index = f"[{expr_text(count)}]" if count is not None else ""
            return f"{name} = MBarrier{index}(arrivals={expr_text(arrivals)})"
    raise AssertionError(f"unknown statement {stmt!r}")


def expr_text(expr: n.Expr | n.Range, around: int = 0) -> str:
    """Canonical text of an expression; `around` is the precedence of what surrounds it."""
    text, strength = _expr(expr)
    return f"({text})" if strength < around else text


def _expr(expr: n.Expr | n.Range) -> tuple[str, int]:
    match expr:
        case n.Int(value=value) | n.Float(value=value):
            return number_text(value), _PRECEDENCE["neg"] if number_text(value).startswith("-") else _ATOM
        case n.Text(value=value):
            return _quoted(value), _ATOM
        case n.Name(id=name):
            return name, _ATOM
        case n.Unary(op=op, operand=operand):
            strength = _PRECEDENCE["neg" if op == "-" else "not"]
            inner = expr_text(operand, strength if op == "not" else _ATOM)
            return (f"-{inner}" if op == "-" else f"not {inner}"), strength
        case n.Binary(op=op, left=left, right=right):
            strength = _PRECEDENCE[op]
            return f"{expr_text(left, strength)} {op} {expr_text(right, strength + 1)}", strength
        case n.Compare(op=op, left=left, right=right):
            strength = _PRECEDENCE[op]
            return f"{expr_text(left, strength + 1)} {op} {expr_text(right, strength + 1)}", strength
        case n.Logic(op=op, left=left, right=right):
            strength = _PRECEDENCE[op]
            return f"{expr_text(left, strength)} {op} {expr_text(right, strength + 1)}", strength
        case n.Select(condition=condition, then=then, otherwise=otherwise):
            return f"{expr_text(then, 1)} if {expr_text(condition, 1)} else {expr_text(otherwise, 0)}", 0
        case n.Range(start=start, size=size):
            return (
                ":" if start is None or size is None else f"{expr_text(start)}:+{expr_text(size, _ATOM)}"
            ), 0
        case n.Index(base=base, items=items):
            return f"{base}[{_list(map(expr_text, items))}]", _ATOM
        case n.Call(name=name, args=args, keywords=keywords):
            given = [*map(expr_text, args), *(f"{key}={expr_text(value)}" for key, value in keywords)]
            return f"{name}({_list(given)})", _ATOM


def _quoted(word: str) -> str:
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
