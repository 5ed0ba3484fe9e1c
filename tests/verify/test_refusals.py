"""What is refused rather than passed: nothing executed, no end, and misuse that no golden kernel shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from cake.diagnostics import Diagnostic
from cake.ir import parse
from cake.kinds.rule import Rule
from cake.machine.facts import Facts, Finding
from cake.plugins import Registry
from cake.verify import check

HEAD = '@kernel(arch="sm_80")\ndef k(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):\n'
ROW = '    grid(M)\n    with role("r", warps=1):\n'
STORE = "        store(y[block, :], load(x[block, :], vector=1, fill=0.0), vector=1)\n"
CASES = {
    "a contract that no small shape meets": (
        HEAD + "    require(N > 1000000)\n" + ROW + STORE,
        "contract/unexecuted",
        3,
    ),
    "a run without end": (
        HEAD
        + ROW
        + "        for i in range(1000000):\n            v = load(x[block, :], vector=1, fill=0.0)\n"
        + STORE,
        "machine/runaway",
        6,
    ),
    "an output that nothing wrote": (
        HEAD + ROW + STORE + "        v = load(y[(block + 1) % blocks, :], vector=1, fill=0.0)\n",
        "mem/uninitialized-read",
        6,
    ),
    "a named barrier that is none": (
        HEAD + ROW + "        named_sync(15 + block + 1, warps=1)\n" + STORE,
        "machine/barrier-id",
        5,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_at_its_line(name: str, registry: Registry) -> None:
    text, code, line = CASES[name]
    report = check(parse(text), registry)
    assert [(d.code, d.primary.span.line) for d in report.diagnostics] == [(code, line)]
    assert not report.ok


class Raises(Rule):
    """Speaks for everything and fails."""

    family = "sync"
    message = "never said"

    def claims(self, finding: Finding) -> bool:
        return True

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        raise RuntimeError("broken")


class KeepsSilent(Raises):
    """Speaks for everything and says nothing."""

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        return ()


RACY = """@kernel(arch="sm_80")
def k(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 2]
    with role("r", warps=2):
        v = load(x[:], vector=1, fill=0.0)
        store(s[warp], warp_sum(v))
        store(y[:], v + load(s[1 - warp]), vector=1)
"""


@pytest.mark.parametrize("rule", [Raises(), KeepsSilent()])
def test_a_rule_that_fails_hides_nothing(rule: Rule, registry: Registry) -> None:
    report = check(parse(RACY), replace(registry, rules={rule.code(): rule}), dims={"N": 64})
    assert [d.code for d in report.diagnostics] == ["machine/race"]


def test_many_dimensions_and_huge_rows_cost_nothing(registry: Registry) -> None:
    params = ", ".join(f"x{i}: Global[f32, N{i}]" for i in range(300))
    wide = (
        f'@kernel(arch="sm_80")\ndef k({params}):\n    grid(1)\n    with role("r", warps=1):\n        i = 1\n'
    )
    assert check(parse(wide), registry).ok
    row = HEAD + "    require(N % 1000000007 == 0)\n" + ROW + STORE
    assert next(d.code for d in check(parse(row), registry).diagnostics) == "res/fragment"
