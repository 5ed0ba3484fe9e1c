"""The verifier: it fails closed, names what it left out, and picks shapes that cover a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from cake import verify
from cake.diagnostics import Diagnostic
from cake.ir import instantiate, parse
from cake.kinds.rule import Rule
from cake.machine.facts import Facts
from cake.plugins import Registry
from cake.verify.instances import choose

KERNELS = Path(__file__).resolve().parents[2] / "plugins" / "kernels"


class Raises(Rule):
    family = "perf"
    message = help = "never"

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        raise ZeroDivisionError("of its own")


class Warns(Rule):
    family, severity = "perf", "warning"
    message = help = "slow"

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        yield self.report(facts.instance.kernel.span)


class Loops(Rule):
    family = "perf"
    message = help = "for ever"

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        while True:
            try:
                while True:
                    pass
            except Exception:
                continue


class Floods(Rule):
    family = "perf"
    message = help = "much"

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        while True:
            yield self.report(facts.instance.kernel.span)


class Leaves(Rule):
    family = "perf"
    message = help = "at once"

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        raise SystemExit(0)


def golden(name: str) -> str:
    return (KERNELS / f"{name}.cake").read_text()


def test_without_rules_every_finding_is_still_an_error(registry: Registry) -> None:
    text = golden("softmax").replace("            cta_sync()\n", "", 1)
    report = verify.check(parse(text), replace(registry, rules={}))
    assert not report.ok
    assert {d.code.partition("/")[0] for d in report.diagnostics} == {"machine"}


def test_a_rule_that_raises_is_named_and_the_rest_goes_on(registry: Registry) -> None:
    text = golden("softmax").replace("            cta_sync()\n", "", 1)
    rules = {**registry.rules, Raises.code(): Raises()}
    report = verify.check(parse(text), replace(registry, rules=rules))
    assert any("perf/raises" in words and "ZeroDivisionError" in words for words in report.unchecked)
    assert [d.code for d in report.diagnostics] == ["sync/shared-race"]


@pytest.mark.parametrize(
    ("rule", "words"), [(Loops, "was cut off"), (Floods, "floods"), (Leaves, "SystemExit")]
)
def test_a_rule_that_does_not_end_is_cut_off_and_named_once(
    rule: type[Rule], words: str, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cake.verify.engine.RULE_SECONDS", 0.2)
    text = golden("softmax").replace("            cta_sync()\n", "", 1)
    report = verify.check(parse(text), replace(registry, rules={**registry.rules, rule.code(): rule()}))
    said = [note for note in report.unchecked if rule.code() in note]
    assert len(said) == 1
    assert words in said[0]
    assert [d.code for d in report.diagnostics] == ["sync/shared-race"]


def test_a_rule_that_does_not_load_is_said_to_be_unchecked(registry: Registry) -> None:
    broken = replace(registry.plugins[0], kind="rule", path="rules/broken.py", line=3, error="no name x")
    report = verify.check(parse(golden("softmax")), replace(registry, plugins=[*registry.plugins, broken]))
    assert "rules/broken.py:3 does not load: no name x" in report.unchecked


def test_warnings_do_not_refuse(registry: Registry) -> None:
    rules = {**registry.rules, Warns.code(): Warns()}
    report = verify.check(parse(golden("rmsnorm")), replace(registry, rules=rules))
    assert report.ok
    assert [d.severity for d in report.diagnostics] == ["warning"]


def test_one_shape_that_shows_an_error_ends_the_check_and_the_report_says_so(registry: Registry) -> None:
    text = golden("softmax").replace("            cta_sync()\n", "", 1)
    report = verify.check(parse(text), registry)
    assert len(report.instances) == 1
    assert any("more small shapes" in words for words in report.unchecked)


def test_no_time_left_is_said(registry: Registry) -> None:
    report = verify.check(parse(golden("softmax")), registry, budget=0.0)
    assert report.instances == ()
    assert "more small shapes" in report.unchecked[0]


def test_an_index_without_value_is_a_diagnostic(registry: Registry) -> None:
    text = golden("softmax").replace("store(y[block, :]", "store(y[(block - 1) // 2, :]")
    report = verify.check(parse(text), registry, dims={"M": 2, "N": 64})
    assert [d.code for d in report.diagnostics] == ["type/no-value"]


def test_what_lies_beyond_the_step_limit_is_said(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cake.machine.engine.MAX_STEPS", 100)
    report = verify.check(parse(golden("gemm_sm80")), registry, dims={"M": 128, "N": 128, "K": 512})
    assert report.ok
    assert [words.partition(": ")[2] for words in report.unchecked] == [
        "what its CTAs do after 100 instructions"
    ]


def test_a_contract_that_nothing_small_meets_is_said(registry: Registry) -> None:
    text = golden("softmax").replace("require(N % VEC == 0)", "require(N % VEC == 0, N > 100000000)")
    report = verify.check(parse(text), registry)
    assert report.instances == ()
    assert "no small shape" in report.unchecked[0]


def test_the_first_shape_wraps_rings_has_tails_and_gives_a_cta_two_tiles(registry: Registry) -> None:
    kernel = parse(golden("gemm_sm90a"))
    choice = choose(kernel, {})[0]
    stages = kernel.constant("STAGES").default
    instance = instantiate(kernel, choice.dims, choice.constants, primitives=registry.primitives)
    assert instance.values["tiles_k"] > 2 * stages
    assert instance.values["tiles_m"] * instance.values["tiles_n"] > instance.blocks
    assert choice.dims["M"] % 128
    assert choice.dims["N"] % 128
    assert choice.dims["K"] % 64


def test_some_shape_has_fewer_tiles_than_stages() -> None:
    assert any(choice.dims["K"] <= 64 for choice in choose(parse(golden("gemm_sm90a")), {}))
