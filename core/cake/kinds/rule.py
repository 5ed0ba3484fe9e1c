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

from cake.diagnostics import Diagnostic, Label, Severity, Span

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
        **words: object,
    ) -> Diagnostic:
        """A diagnostic of this rule: `message` and `help` filled with `words`, places as given."""
        return Diagnostic(
            code=self.code(),
            message=self.message.format(**words),
            primary=Label(span, label),
            secondary=tuple(Label(s, m) for s, m in secondary),
            severity=self.severity,
            path=path,
            help=(self.help if help is None else help).format(**words),
        )
