"""Rule: a verifier rule, one file (rules/NAME.py), documented by its docstring and proven by its cases.

The docstring's headings are Finds, Why, Mend, Silent when, Source. `check` looks at a typed kernel instance
(static rules) or at what the machine observed on it (facts), and yields diagnostics.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from cake.diagnostics import Diagnostic, Edit, Label, Severity, Span

if TYPE_CHECKING:
    from cake.machine.facts import Facts, Finding

Family = Literal["sync", "mem", "res", "arch", "num", "type", "perf"]


@dataclass(frozen=True, slots=True)
class Bad:
    """A kernel that the rule refuses. `#! code` ends each faulty line, `#> words` each second place; no
    other diagnostic appears. `fixed` is its mend, silent under all rules. `dims` pins the instance; `records`
    names the public failures of docs/verifier.md that this kernel reduces."""

    name: str
    kernel: str
    fixed: str
    dims: Mapping[str, int] = field(default_factory=dict)
    records: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Good:
    """A kernel near the offence on which every rule is silent."""

    name: str
    kernel: str
    dims: Mapping[str, int] = field(default_factory=dict)


class Rule(ABC):
    """One offence, named by it: UnfencedTmaStore in unfenced_tma_store.py is sync/unfenced-tma-store."""

    family: ClassVar[Family]
    severity: ClassVar[Severity] = "error"
    archs: ClassVar[str] = ">=sm_80"
    needs: ClassVar[Literal["instance", "facts"]] = "facts"
    """"instance": looks at `facts.instance` alone, runs before the machine. "facts": reads findings."""
    message: ClassVar[str]
    help: ClassVar[str] = ""
    cases: ClassVar[tuple[Bad | Good, ...]] = ()

    @classmethod
    def slug(cls) -> str:
        """`UnfencedTmaStore` -> `unfenced-tma-store`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    @classmethod
    def code(cls) -> str:
        """The stable code, `family/slug`."""
        return f"{cls.family}/{cls.slug()}"

    @abstractmethod
    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        """Diagnostics for one instance. Pure; raises nothing for any kernel."""

    def claims(self, finding: Finding) -> bool:
        """Whether this rule speaks for a finding of the machine; it is then not reported generically."""
        return False

    def report(
        self,
        span: Span,
        label: str = "",
        *,
        secondary: tuple[tuple[Span, str], ...] = (),
        path: tuple[str, ...] = (),
        help: str | None = None,
        fix: tuple[Edit, ...] = (),
        **words: object,
    ) -> Diagnostic:
        """A diagnostic of this rule: `message` and `help` filled with `words`, places as given; `fix` where
        the mend is certain and changes nothing of a right kernel (`insertion` makes one)."""
        return Diagnostic(
            code=self.code(),
            message=self.message.format(**words),
            primary=Label(span, label),
            secondary=tuple(Label(s, m) for s, m in secondary),
            severity=self.severity,
            path=path,
            help=(self.help if help is None else help).format(**words),
            fix=fix,
        )


def insertion(facts: Facts, span: Span, call: str, *, behind: bool) -> tuple[Edit, ...]:
    """The edit that puts the statement `call` on a line of its own before or behind the one at `span`; none
    where that statement shares its line with another."""
    lines = facts.instance.kernel.source.lines
    if not 0 < span.end_line <= len(lines):
        return ()
    line = lines[span.line - 1]
    indent = line[: len(line) - len(line.lstrip())]
    before = line[: span.column].strip()
    if before and not re.fullmatch(r"\w+ =", before):
        return ()
    if behind:
        end = len(lines[span.end_line - 1])
        return (Edit(Span(span.end_line, end, span.end_line, end), f"\n{indent}{call}"),)
    return (Edit(Span(span.line, 0, span.line, 0), f"{indent}{call}\n"),)
