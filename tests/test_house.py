"""The house: what every file owes the others, whoever wrote it."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from cake import hookspecs
from cake.conformance import HEADINGS
from cake.conformance.support import read_marks
from cake.diagnostics import Source, render
from cake.kinds.rule import Bad
from cake.machine import effects
from cake.plugins import KINDS, Registry, plugin_files

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "core" / "cake"
SOURCES = sorted(CORE.rglob("*.py"))
LONGEST_FILE = 600


def tracked() -> list[Path]:
    """The files that git has or would add; without git, those of a source archive."""
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        return [path for path in ROOT.rglob("*.py") if ".venv" not in path.parts]
    return [ROOT / name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


# --- plugins -----------------------------------------------------------------------------------------------


def test_no_plugin_of_this_repository_is_broken(registry: Registry) -> None:
    assert [f"{r.path}:{r.line}: {r.error}" for r in registry.broken] == []


def test_each_hook_is_documented_and_used(registry: Registry) -> None:
    hooks = {name: hook for name, hook in vars(hookspecs).items() if name.startswith("cake_")}
    assert set(hooks) == {kind.hook for kind in KINDS.values()}
    for kind in KINDS.values():
        documentation = inspect.getdoc(hooks[kind.hook]) or ""
        assert f"Folder `{kind.folder}`" in documentation
        assert registry.of(kind.name), f"no plugin answers {kind.hook}"


def test_each_kind_has_headings() -> None:
    assert set(HEADINGS) == set(KINDS)


def test_the_core_names_no_plugin(registry: Registry) -> None:
    """No module of the core imports a plugin or says its name; the machine's own vocabulary is not a name."""
    vocabulary = {*get_args(effects.Group), *get_args(effects.FenceKind)}
    own = {slug for kind in ("rule", "tactic", "calibration") for slug in _slugs(kind)} | set(registry.rules)
    own |= {name for name in registry.primitives if "_" in name} - vocabulary
    named = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            module = getattr(node, "module", None) if isinstance(node, ast.ImportFrom) else None
            if module and module.startswith("cake_plugins"):
                named.append(f"{path.relative_to(ROOT)}:{node.lineno}: imports {module}")
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in own:
                named.append(f"{path.relative_to(ROOT)}:{node.lineno}: names {node.value}")
    assert named == []


def _slugs(kind: str) -> set[str]:
    return {path.stem for path in plugin_files(ROOT, KINDS[kind])}


def test_every_rule_is_shown_by_a_case_of_its_own(registry: Registry) -> None:
    """Its code is emitted: some `Bad` case of the rule marks it (that it does is tested by conformance)."""
    for code, rule in registry.rules.items():
        marks = [read_marks(case.kernel, code).faults for case in rule.cases if isinstance(case, Bad)]
        assert any(code in {c for _, c in faults} for faults in marks), f"no case of {code} marks it"


def test_messages_name_words_that_exist(registry: Registry) -> None:
    """A rule's message renders: no field is left unfilled in what its cases show."""
    for rule in registry.rules.values():
        assert not re.search(r"\{\W", rule.message + rule.help)
    assert render([], Source("x", "")) == ""


# --- imports and packaging ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_part_stands_in_one_half(project: dict) -> None:
    [contract, _] = project["tool"]["importlinter"]["contracts"]
    halves = {*contract["source_modules"], *contract["forbidden_modules"]}
    parts = {f"cake.{p.stem}" for p in CORE.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    assert parts - {"cake.__init__"} == halves


def test_both_contracts_hold_for_the_same_half(project: dict) -> None:
    [contract, bare] = project["tool"]["importlinter"]["contracts"]
    assert contract["source_modules"] == bare["source_modules"]


def test_every_marker_and_exemption_is_needed(project: dict) -> None:
    """A per-file exemption of the linter names files that exist and that need it."""
    exemptions = project["tool"]["ruff"]["lint"].get("per-file-ignores", {})
    for pattern, codes in exemptions.items():
        files = [str(path) for path in ROOT.glob(pattern)]
        assert files, f"{pattern} matches no file"
        for code in codes:
            command = [
                sys.executable,
                "-m",
                "ruff",
                "check",
                "--isolated",
                "--select",
                code,
                "--quiet",
                *files,
            ]
            assert subprocess.run(command, capture_output=True, check=False).returncode == 1, (
                f"{pattern}: {code}"
            )


# --- files -------------------------------------------------------------------------------------------------


def test_files_stay_short() -> None:
    long = {
        str(p.relative_to(ROOT)): n
        for p in tracked()
        if p.suffix == ".py" and (n := _lines(p)) > LONGEST_FILE
    }
    assert long == {}


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_every_module_says_what_it_is() -> None:
    bare = [
        str(path.relative_to(ROOT)) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert bare == []


def test_only_the_command_line_prints() -> None:
    printing = []
    for path in SOURCES:
        if (CORE / "cli") in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                printing.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert printing == []


UNFINISHED = re.compile(
    "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "Not" + "ImplementedError", "for " + "now\\b"])
)


def test_nothing_is_left_unfinished() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked()
        if path.suffix in (".py", ".md", ".cake", ".toml")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert found == []
