"""Rules: `Bad` yields exactly the marked diagnostics, `fixed` and `Good` are silent under all rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, get_args

from cake.conformance.support import (
    Named,
    demand,
    demand_cases,
    expect_marked,
    expect_silent,
    judge,
    read_marks,
)
from cake.diagnostics import apply
from cake.ir.arch import ARCHS, admits
from cake.kinds import rule
from cake.plugins import PluginRecord, Registry


def rule_checks(
    registry: Registry, record: PluginRecord, it: rule.Rule, hidden: Sequence[Any]
) -> Iterator[Named]:
    cases = [*it.cases, *hidden]
    yield "has-cases", partial(demand_cases, record, it.cases, rule.Bad, rule.Good)
    yield "typed", partial(_rule_fields, record, it)
    for case in cases:
        where = f"{record.path}: {case.name}"
        if isinstance(case, rule.Bad):
            yield case.name, partial(_rule_bad, registry, it, case, where)
            yield f"{case.name} fixed", partial(expect_silent, registry, case.fixed, case.dims, where)
            yield f"{case.name} mended by its fix", partial(_rule_fix, registry, it, case, where)
        else:
            yield case.name, partial(expect_silent, registry, case.kernel, case.dims, where)


def _rule_fields(record: PluginRecord, it: rule.Rule) -> None:
    families = get_args(rule.Family)
    demand(it.family in families, f"{record.path}: family {it.family!r} is none of {', '.join(families)}")
    demand(bool(it.message.strip()), f"{record.path}: the message is empty")
    demand(bool(it.help.strip()), f"{record.path}: `help` says what to do; it is empty")
    demand(any(admits(it.archs, a) for a in ARCHS), f"{record.path}: archs {it.archs!r} admits none")


def _rule_fix(registry: Registry, it: rule.Rule, case: rule.Bad, where: str) -> None:
    """A fix that is offered makes its kernel clean."""
    text = read_marks(case.kernel, it.code()).text
    edits = [edit for d in judge(registry, text, case.dims, where) for edit in d.fix]
    if edits:
        expect_silent(registry, apply(text, edits), case.dims, f"{where}, its fix applied")


def _rule_bad(registry: Registry, it: rule.Rule, case: rule.Bad, where: str) -> None:
    marked = read_marks(case.kernel, it.code())
    codes = {code for _, code in marked.faults}
    demand(it.code() in codes, f"{where}: mark the faulty line with `#! {it.code()}`")
    expect_marked(registry, marked, case.dims, where)
