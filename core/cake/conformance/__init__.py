"""The tests that a plugin file carries: made from its docstring and its cases, one engine for each kind.

`cake test FILE`, pytest (`tests/test_conformance.py`) and the gate run the same checks; the gate adds hidden
cases. A check is a name and a function that raises `Failed` with what is wrong and what to do about it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cake.conformance.others import calibration_checks, device_checks, task_checks
from cake.conformance.primitives import primitive_checks
from cake.conformance.rules import rule_checks
from cake.conformance.support import Engine, Failed, Named, demand
from cake.conformance.tactics import tactic_checks
from cake.errors import CakeError
from cake.kinds.primitive import Primitive
from cake.plugins import KINDS, PluginRecord, Registry, snake

__all__ = ["HEADINGS", "Check", "Failed", "all_checks", "checks", "checks_of_file", "docstring_sections"]

_ENGINES: Mapping[str, Engine] = {
    "primitive": primitive_checks,
    "rule": rule_checks,
    "tactic": tactic_checks,
    "calibration": calibration_checks,
    "task": task_checks,
    "device": device_checks,
}

HEADINGS: Mapping[str, tuple[str, ...]] = {
    "primitive": ("Takes", "Touches", "Completes when", "Source"),
    "rule": ("Finds", "Why", "Mend", "Silent when", "Source"),
    "tactic": ("Symptom", "Change", "Mechanism", "Boundary", "Verify"),
    "calibration": ("Measured how", "Valid for", "Not valid for"),
    "task": (),
    "device": (),
    "proposer": (),
}
"""What the docstring of each kind tells, each heading at the start of a line: `Finds: ...`."""


@dataclass(frozen=True, slots=True)
class Check:
    """One generated test. `id` is `kind/slug/what`."""

    id: str
    run: Callable[[], None]


def checks(registry: Registry, record: PluginRecord, hidden: Sequence[Any] = ()) -> list[Check]:
    """The checks of one plugin, those of the `hidden` cases after its own."""
    if record.error:
        broken = f"{record.path}:{record.line}: {record.error}"
        return [Check(f"{record.kind}/{record.name}/loads", partial(demand, False, broken))]
    thing = registry.of(record.kind)[record.name]
    prefix = f"{record.kind}/{_slug(record, thing)}"
    found: list[Named] = [("documented", partial(check_docstring, registry, record))]
    if record.kind in _ENGINES:
        found += _ENGINES[record.kind](registry, record, thing, hidden)
    return [Check(f"{prefix}/{what}", run) for what, run in _unique(found)]


def all_checks(registry: Registry) -> list[Check]:
    """The checks of every plugin, a primitive of several names once."""
    seen: set[int] = set()
    out: list[Check] = []
    for record in registry.plugins:
        thing = registry.of(record.kind).get(record.name) if not record.error else None
        if thing is None or id(thing) not in seen:
            out += checks(registry, record)
        seen.add(id(thing) if thing is not None else 0)
    return out


def checks_of_file(registry: Registry, path: Path) -> list[Check]:
    """The checks of the plugins that `path` defines. Raises CakeError where it is no plugin of `registry`."""
    resolved = path.resolve()
    records = [r for r in registry.plugins if (registry.root / r.path).resolve() == resolved]
    if not records:
        folders = ", ".join(f"{kind.folder}/" for kind in KINDS.values())
        raise CakeError(f"{path} is no plugin of the workspace {registry.root}: plugins lie in {folders}")
    kept = {id(registry.of(r.kind).get(r.name)) if not r.error else id(r): r for r in reversed(records)}
    return [check for record in reversed(kept.values()) for check in checks(registry, record)]


def _slug(record: PluginRecord, thing: Any) -> str:
    """The file's slug, or for a primitive, whose file may hold a family, the class's."""
    if isinstance(thing, Primitive):
        return snake(type(thing).__name__)
    return record.name.rpartition("/")[2].replace("-", "_")


def _unique(found: Iterable[Named]) -> Iterator[Named]:
    seen: dict[str, int] = {}
    for what, run in found:
        what = re.sub(r"[^\w.]+", "-", what).strip("-")
        seen[what] = seen.get(what, 0) + 1
        yield (what if seen[what] == 1 else f"{what}-{seen[what]}"), run


# --- documentation ------------------------------------------------------------------------------------------


def check_docstring(registry: Registry, record: PluginRecord) -> None:
    """The file's docstring has a title and text under each heading of its kind."""
    text = (registry.root / record.path).read_text(encoding="utf-8")
    sections = docstring_sections(ast.get_docstring(ast.parse(text)) or "", HEADINGS[record.kind])
    for heading, body in sections.items():
        what = heading or "the first line"
        if not body:
            raise Failed(f"{record.path}:1: the docstring says nothing under {what!r}")
        if re.fullmatch(r"\(.*\)", body, re.DOTALL):
            raise Failed(f"{record.path}:1: fill in {what}: {body[1:-1]}")


def docstring_sections(text: str, headings: Sequence[str]) -> dict[str, str]:
    """The text under each heading, the title under `""`; empty where a heading is absent."""
    title = text.strip().partition("\n")[0].strip()
    if not headings:
        return {"": title}
    names = "|".join(re.escape(heading) for heading in headings)
    parts = re.split(rf"^[#\s]*({names})(?:[ \t]*\([^)\n]*\))?(?:[ \t]*:|[ \t]*$)", text, flags=re.MULTILINE)
    found = dict.fromkeys(headings, "")
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        found[heading] = body.strip()
    return {"": title, **found}
