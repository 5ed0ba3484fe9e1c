"""Python's grammar under limits: what hostile text may cost before a kernel is read from it."""

from __future__ import annotations

import ast

from cake.diagnostics import KernelErrors, Source, Span, error

MAX_CHARACTERS = 256 * 1024
MAX_DEPTH = 64


def python_tree(text: str, source: Source) -> ast.Module:
    """The syntax tree of `text`. Raises KernelErrors (family `syntax`) beyond the limits or the grammar."""
    start = Span(1, 0, 1, 1)

    def refuse(code: str, message: str, span: Span = start, help: str = "") -> KernelErrors:
        return KernelErrors([error(f"syntax/{code}", message, span, help=help)], source)

    if len(text) > MAX_CHARACTERS:
        raise refuse(
            "too-long", f"kernel text has {len(text)} characters, over the limit of {MAX_CHARACTERS}"
        )
    deep = _too_deep(text)
    if deep is not None:
        raise refuse("too-deep", f"nested deeper than {MAX_DEPTH} levels", deep)
    try:
        return ast.parse(text)
    except SyntaxError as e:
        line, column = e.lineno or 1, max(0, (e.offset or 1) - 1)
        place = Span(line, column, line, column + 1)
        raise refuse("python", f"not in Python's grammar: {e.msg}", place) from None
    except ValueError as e:
        raise refuse("python", f"not in Python's grammar: {e}") from None
    except (RecursionError, MemoryError):
        raise refuse("too-deep", f"nested deeper than {MAX_DEPTH} levels") from None


def _too_deep(text: str) -> Span | None:
    """The first place where brackets, indentation or operators pile up beyond any honest kernel."""
    depth = run = 0
    for number, line in enumerate(text.split("\n"), 1):
        indent = len(line) - len(line.lstrip())
        if indent > 8 * MAX_DEPTH:
            return Span(number, 0, number, 1)
        for column, char in enumerate(line):
            if char in "([{":
                depth += 1
            elif char in ")]}":
                depth = max(0, depth - 1)
            run = run + 1 if char in "-+~" else run if char == " " else 0
            if depth > MAX_DEPTH or run > MAX_DEPTH:
                return Span(number, column, number, column + 1)
    return None
