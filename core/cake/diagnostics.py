"""What cake says about a kernel: one typed record, rendered for people or as JSON.

Every refusal, from the parser to the machine, is a `Diagnostic`. It names a stable code, the place at fault
in the kernel's text, the other places involved and what to do. Nothing here prints: `render` and `as_json`
return text and plain data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A piece of kernel text: 1-based lines, 0-based columns in characters, end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


NOWHERE = Span(0, 0, 0, 0)
"""The span of nodes that a rewrite built and no text holds yet; never compared, see `ir.nodes`."""


@dataclass(frozen=True, slots=True)
class Label:
    """A place and what happens there."""

    span: Span
    message: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `text` in place of `span`, which may be empty."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One cause, one diagnostic.

    `code` is `family/slug`; `primary` is the place to change; `secondary` are the places it conflicts with;
    `path` says how control gets there ("in pass j=2 of the loop in line 9"); `help` is one concrete edit, and
    `fix` the same for a machine, given only where it cannot change what a right kernel computes.
    """

    code: str
    message: str
    primary: Label
    secondary: tuple[Label, ...] = ()
    severity: Severity = "error"
    path: tuple[str, ...] = ()
    help: str = ""
    instance: str = ""
    fix: tuple[Edit, ...] = ()

    def at(self, span: Span) -> Diagnostic:
        """The same diagnostic with its primary place moved to `span`."""
        return replace(self, primary=Label(span, self.primary.message))


def error(code: str, message: str, span: Span, *, label: str = "", help: str = "") -> Diagnostic:
    """A diagnostic of severity error with one place."""
    return Diagnostic(code, message, Label(span, label), help=help)


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel's text and the path it is shown under."""

    path: str
    text: str
    lines: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", tuple(self.text.split("\n")))


class KernelErrors(Exception):
    """A kernel was refused. `diagnostics` is never empty; `source` is what they point into."""

    def __init__(self, diagnostics: Iterable[Diagnostic], source: Source) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        self.source = source
        super().__init__("; ".join(f"{d.code}: {d.message}" for d in self.diagnostics))


def apply(text: str, edits: Iterable[Edit]) -> str:
    """`text` with the edits made. Of edits that overlap, the first in the text is made."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    out, at = [], 0
    for edit in sorted(dict.fromkeys(edits), key=lambda e: e.span):
        start = starts[edit.span.line - 1] + edit.span.column
        if start >= at:
            out += [text[at:start], edit.text]
            at = starts[edit.span.end_line - 1] + edit.span.end_column
    return "".join([*out, text[at:]])


def render(diagnostics: Sequence[Diagnostic], source: Source) -> str:
    """The diagnostics as text in the manner of rustc, one blank line between two."""
    return "\n\n".join(_render_one(d, source) for d in diagnostics)


def _render_one(diagnostic: Diagnostic, source: Source) -> str:
    labels = [(diagnostic.primary, "^"), *((label, "-") for label in diagnostic.secondary)]
    labels = [(label, mark) for label, mark in labels if label.span.line > 0]
    width = max((len(str(label.span.line)) for label, _ in labels), default=1)
    gutter = " " * width
    out = [f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}"]
    if diagnostic.primary.span.line > 0:
        span = diagnostic.primary.span
        out.append(f"{gutter}--> {source.path}:{span.line}:{span.column + 1}")
        out.append(f"{gutter} |")
    previous = 0
    for label, mark in sorted(labels, key=lambda pair: (pair[0].span, pair[1])):
        if previous and label.span.line > previous + 1:
            out.append("...")
        out += _snippet(label, mark, source, gutter, repeat=label.span.line == previous)
        previous = label.span.line
    if labels:
        out.append(f"{gutter} |")
    out += [f"{gutter} = path: {step}" for step in diagnostic.path]
    if diagnostic.instance:
        out.append(f"{gutter} = seen with: {diagnostic.instance}")
    if diagnostic.help:
        out.append(f"{gutter} = help: {diagnostic.help}")
    return "\n".join(out)


_LONGEST_LINE = 200


def _snippet(label: Label, mark: str, source: Source, gutter: str, repeat: bool) -> list[str]:
    span = label.span
    text = source.lines[span.line - 1] if span.line <= len(source.lines) else ""
    text = text.expandtabs(1)[:_LONGEST_LINE]
    end = span.end_column if span.end_line == span.line else len(text)
    start = min(span.column, len(text))
    carets = mark * max(1, min(end, len(text)) - start)
    under = f"{gutter} | {' ' * start}{carets} {label.message}".rstrip()
    if repeat:
        return [under]
    return [f"{str(span.line).rjust(len(gutter))} | {text}", under]


def as_json(diagnostics: Iterable[Diagnostic], source: Source | None = None) -> list[dict[str, Any]]:
    """The diagnostics as plain data, the same facts as `render`."""
    path = source.path if source else ""
    return [_one_json(diagnostic, path) for diagnostic in diagnostics]


def _one_json(diagnostic: Diagnostic, path: str) -> dict[str, Any]:
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "file": path,
        "primary": _label_json(diagnostic.primary),
        "secondary": [_label_json(label) for label in diagnostic.secondary],
        "path": list(diagnostic.path),
        "instance": diagnostic.instance,
        "help": diagnostic.help,
        "fix": [{**_label_json(Label(edit.span)), "text": edit.text} for edit in diagnostic.fix],
    }


def _label_json(label: Label) -> dict[str, Any]:
    span = label.span
    return {
        "line": span.line,
        "column": span.column + 1,
        "end_line": span.end_line,
        "end_column": span.end_column + 1,
        "message": label.message,
    }
