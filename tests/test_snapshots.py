"""What a rule says about its own bad cases, letter for letter; `make snapshots` rewrites, a person reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from cake.conformance.support import judge, read_marks
from cake.diagnostics import Source, render
from cake.kinds.rule import Bad, Rule
from cake.plugins import Registry, load

ROOT = Path(__file__).resolve().parent.parent
SNAPSHOTS = ROOT / "tests" / "snapshots"
RULES = load(ROOT).rules


def rendered(registry: Registry, rule: Rule) -> str:
    parts = []
    for case in rule.cases:
        if isinstance(case, Bad):
            text = read_marks(case.kernel, rule.code()).text
            said = judge(registry, text, case.dims, case.name)
            parts.append(f"# {case.name}\n\n{render(said, Source(case.name, text))}\n")
    return "\n".join(parts)


def snapshot_of(rule: Rule) -> Path:
    return SNAPSHOTS / f"{rule.slug().replace('-', '_')}.txt"


@pytest.mark.parametrize("code", sorted(RULES))
def test_a_rule_says_what_its_snapshot_shows(
    code: str, registry: Registry, pytestconfig: pytest.Config
) -> None:
    rule = registry.rules[code]
    path = snapshot_of(rule)
    said = rendered(registry, rule)
    if pytestconfig.getoption("--write-snapshots"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(said)
    assert path.is_file(), "no snapshot: `make snapshots`, then read it"
    assert said == path.read_text()


def test_no_snapshot_is_stale() -> None:
    assert {path.name for path in SNAPSHOTS.glob("*")} == {snapshot_of(rule).name for rule in RULES.values()}
