"""How control gets to a fault: in which passes of which loops, past which loops that make none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cake.diagnostics import Diagnostic
from cake.ir import nodes as n
from cake.machine.facts import Access, Facts, Race, UninitializedRead


def with_paths(diagnostics: Iterable[Diagnostic], facts: Facts) -> Iterator[Diagnostic]:
    """The diagnostics, each with the path to the accesses that it speaks of, where the machine saw them."""
    for diagnostic in diagnostics:
        words = () if diagnostic.path else tuple(_path(diagnostic, facts))
        yield replace(diagnostic, path=words) if words else diagnostic


def _path(diagnostic: Diagnostic, facts: Facts) -> Iterator[str]:
    spans = {diagnostic.primary.span, *(label.span for label in diagnostic.secondary)}
    for finding in facts.findings:
        match finding:
            case Race(earlier=earlier, later=later) if {earlier.span, later.span} <= spans:
                yield from _steps(earlier, later)
                yield from _skipped(earlier, later, facts)
                return
            case UninitializedRead(access=access) if access.span in spans:
                yield from _steps(access)
                return


def _steps(*accesses: Access) -> Iterator[str]:
    for access in accesses:
        if access.passes:
            where = ", ".join(f"{name}={value}" for name, value in access.passes)
            yield f"line {access.span.line}, role {access.role}: at {where}"


def _skipped(earlier: Access, later: Access, facts: Facts) -> Iterator[str]:
    """Loops between the two that make no pass on this shape: what stands in them was not there."""
    first, last = sorted((earlier.span.line, later.span.line))
    for stmt in n.walk(facts.instance.kernel.body):
        between = isinstance(stmt, n.For) and first < stmt.span.line < last
        if between and (id(stmt), False) in facts.taken and (id(stmt), True) not in facts.taken:
            yield f"the loop in line {stmt.span.line} makes no pass"
