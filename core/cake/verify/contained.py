"""Rules at work: they are plugins, so one that raises, loops or floods is cut off, named and left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from cake.deadline import Overrun, deadline
from cake.diagnostics import Diagnostic
from cake.kinds.rule import Rule
from cake.machine.facts import Facts, Finding

RULE_SECONDS = 2.0
"""What a rule may take on one instance: a thousand times what rules take."""
MOST = 50
"""Diagnostics of one rule on one instance: nobody reads more, and no mend needs them."""


@dataclass(slots=True)
class Contained:
    """The rules of one check. What was left out, and why, is added to `unchecked`."""

    unchecked: list[str]
    seconds: float = RULE_SECONDS
    left_out: set[str] = field(default_factory=set)

    def apply(self, rule: Rule, facts: Facts) -> list[Diagnostic]:
        """What the rule says; nothing once it has failed in this check."""
        code = rule.code()
        if code in self.left_out:
            return []
        try:
            with deadline(self.seconds) as armed:
                found = list(islice(rule.check(facts), MOST + 1))
        except (Exception, SystemExit) as error:
            return self._leave_out(code, f"failed with {type(error).__name__}: {error}")
        except Overrun:
            return self._leave_out(code, f"was cut off after {self.seconds:g} s")
        if not armed:
            self._note("rules ran without a deadline: not on the main thread, or another timer runs")
        if len(found) > MOST:
            return self._leave_out(code, f"floods: more than {MOST} diagnostics on one shape")
        return found

    def claims(self, rule: Rule, finding: Finding) -> bool:
        """Whether the rule speaks for the finding. Where it fails to say, the finding is said plainly."""
        try:
            with deadline(self.seconds):
                return rule.claims(finding)
        except (Exception, SystemExit, Overrun):
            return False

    def each(self, rules: Iterable[Rule], facts: Facts) -> list[Diagnostic]:
        """What all the rules say, in turn."""
        return [diagnostic for rule in rules for diagnostic in self.apply(rule, facts)]

    def _leave_out(self, code: str, why: str) -> list[Diagnostic]:
        self.left_out.add(code)
        self._note(f"rule {code} {why}; it is left out")
        return []

    def _note(self, words: str) -> None:
        if words not in self.unchecked:
            self.unchecked.append(words)
