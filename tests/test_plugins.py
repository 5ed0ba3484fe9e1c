"""Loading: by folder and by entry point; a broken plugin is named, switched off, and the rest goes on."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import dedent

import pytest

from cake import plugins
from cake.cli.plugins import with_history
from cake.errors import CakeError
from cake.plugins import Registry, find_workspace, load

RULE = '''
"""Refuses nothing"""
from cake.kinds.rule import Rule


class {name}(Rule):
    family = "sync"
    message = "nothing"

    def check(self, facts):
        return ()
'''


def rule(name: str) -> str:
    return RULE.format(name=name).lstrip()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for folder in ("plugins/primitives", "plugins/tasks", "rules", "tactics", "calibrations"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def write(workspace: Path, path: str, text: str) -> None:
    (workspace / path).write_text(dedent(text).lstrip())


def broken(registry: Registry) -> dict[str, tuple[int, str]]:
    return {record.path: (record.line, record.error) for record in registry.broken}


def test_a_file_in_a_folder_is_a_plugin(workspace: Path) -> None:
    write(workspace, "rules/odd_wait.py", rule("OddWait"))
    registry = load(workspace)
    assert list(registry.rules) == ["sync/odd-wait"]
    [record] = registry.plugins
    assert (record.kind, record.name, record.origin) == ("rule", "sync/odd-wait", "workspace")
    assert (record.path, record.line, record.error) == ("rules/odd_wait.py", 5, "")
    assert type(registry.rules["sync/odd-wait"]).__module__ == "cake_plugins.rules.odd_wait"


def test_names_come_in_order_whatever_the_order_of_files(workspace: Path) -> None:
    for slug in ("zeta", "alpha", "middle"):
        write(workspace, f"rules/{slug}.py", rule(slug.capitalize()))
    assert list(load(workspace).rules) == ["sync/alpha", "sync/middle", "sync/zeta"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("'''Doc'''\nimport nothing_like_this\n", 2, "ModuleNotFoundError"),
        ("'''Doc'''\n\nx = 1 / 0\n", 3, "ZeroDivisionError"),
        ("'''Doc'''\ndef f(:\n", 2, "SyntaxError"),
        ("'''Doc'''\nraise SystemExit(3)\n", 2, "SystemExit: 3"),
        ("'''Doc'''\nclass Odd(BaseException): pass\nraise Odd('x')\n", 3, "Odd: x"),
        ("x = 1\n", 1, "no docstring"),
        ("'''Doc'''\n", 1, "defines no Rule: expected class Bad"),
        (rule("Other"), 5, "class Other disagrees with the file: expected Bad"),
        (
            "'''Doc'''\nfrom cake.kinds.rule import Rule\nclass Bad(Rule):\n    pass\n",
            3,
            "does not define check",
        ),
        (rule("Bad") + "\n    def __init__(self):\n        self.x = {}['y']\n", 13, "KeyError: 'y'"),
    ],
)
def test_a_broken_plugin_is_named_and_the_rest_goes_on(
    workspace: Path, text: str, line: int, words: str
) -> None:
    write(workspace, "rules/bad.py", text)
    write(workspace, "rules/good.py", rule("Good"))
    registry = load(workspace)
    assert list(registry.rules) == ["sync/good"]
    at, message = broken(registry)["rules/bad.py"]
    assert at == line
    assert words in message


def test_control_c_is_not_swallowed(workspace: Path) -> None:
    write(workspace, "rules/bad.py", "'''Doc'''\nraise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load(workspace)


@pytest.mark.parametrize("name", ["Bad", "bad-name", "two__words", "x_2"])
def test_a_file_name_that_is_no_slug_is_broken(workspace: Path, name: str) -> None:
    write(workspace, f"rules/{name}.py", rule("Bad"))
    assert "lower case" in broken(load(workspace))[f"rules/{name}.py"][1]


def test_a_leading_underscore_marks_a_helper_that_plugins_may_import(workspace: Path) -> None:
    write(workspace, "rules/_words.py", "WORD = 'from the helper'\n")
    write(
        workspace,
        "rules/good.py",
        rule("Good") + "\n\nfrom cake_plugins.rules._words import WORD as message\n",
    )
    registry = load(workspace)
    assert not registry.broken
    assert list(registry.rules) == ["sync/good"]


def test_each_load_reads_the_files_anew(workspace: Path) -> None:
    write(workspace, "rules/good.py", rule("Good"))
    assert load(workspace).rules["sync/good"].message == "nothing"
    write(workspace, "rules/good.py", rule("Good").replace("nothing", "anythin"))
    assert load(workspace).rules["sync/good"].message == "anythin"
    assert not list(workspace.rglob("*.pyc"))


def test_a_registry_stays_usable_after_another_workspace_was_loaded(workspace: Path, root: Path) -> None:
    write(workspace, "rules/good.py", rule("Good"))
    first = load(workspace)
    load(root)
    assert first.rules["sync/good"].code() == "sync/good"


def test_an_unknown_name_says_what_is_near(workspace: Path) -> None:
    write(workspace, "rules/good.py", rule("Good"))
    write(workspace, "rules/bad.py", "'''Doc'''\n1/0\n")
    registry = load(workspace)
    assert registry.get("rule", "sync/good") is registry.rules["sync/good"]
    with pytest.raises(CakeError, match="did you mean sync/good"):
        registry.get("rule", "sync/god")
    with pytest.raises(CakeError, match=r"rules/bad\.py:2: ZeroDivisionError"):
        registry.get("rule", "bad")


def test_a_workspace_is_found_from_below(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = workspace / "plugins" / "tasks"
    assert find_workspace(deep) == workspace
    monkeypatch.chdir(deep)
    assert load().root == workspace


def test_outside_any_workspace_the_seed_is_loaded(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    registry = load()
    assert registry.root == root
    assert {record.origin for record in registry.plugins} <= {"seed"}


def test_a_folder_without_plugins_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CakeError, match="is no workspace"):
        load(tmp_path)


# --- entry points ------------------------------------------------------------------------------------------


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Make modules importable and announce them under the entry point group."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def announce(**modules: str) -> None:
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(text)
            sys.modules.pop(name, None)
        points = [EntryPoint(name=name, value=name, group="cake") for name in modules]
        monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == "cake" else [])

    return announce


HOOKS = "\n\nimport cake\n\n\n@cake.hookimpl\ndef cake_rules():\n    return [{name}]\n"


def test_an_entry_point_brings_plugins(workspace: Path, install) -> None:
    install(their_rules=rule("OddWait") + HOOKS.format(name="OddWait"))
    registry = load(workspace)
    [record] = registry.plugins
    assert (record.kind, record.name, record.origin) == ("rule", "sync/odd-wait", "entry point their_rules")
    assert record.path.endswith("their_rules.py")


def test_a_taken_name_switches_the_later_plugin_off(workspace: Path, install) -> None:
    write(workspace, "rules/odd_wait.py", rule("OddWait"))
    install(their_rules=rule("OddWait") + HOOKS.format(name="OddWait"))
    registry = load(workspace)
    assert type(registry.rules["sync/odd-wait"]).__module__ == "cake_plugins.rules.odd_wait"
    [record] = registry.broken
    assert record.error == "the name sync/odd-wait is taken by rules/odd_wait.py"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise SystemExit", "SystemExit"),
        ("import cake\n@cake.hookimpl\ndef cake_rules():\n    1 / 0\n", "ZeroDivisionError"),
        ("import cake\n@cake.hookimpl\ndef cake_rules():\n    return ['x']\n", "'x', which is no Rule"),
        ("import cake\n@cake.hookimpl\ndef cake_ruels():\n    return []\n", "cake_ruels"),
        ("import cake\n@cake.hookimpl\ndef cake_rules(word):\n    return []\n", "word"),
    ],
)
def test_a_broken_entry_point_is_named_and_the_rest_goes_on(
    workspace: Path, install, text: str, words: str
) -> None:
    write(workspace, "rules/good.py", rule("Good"))
    install(aaa_broken=text, their_rules=rule("OddWait") + HOOKS.format(name="OddWait"))
    registry = load(workspace)
    assert list(registry.rules) == ["sync/good", "sync/odd-wait"]
    [record] = registry.broken
    assert record.name == "aaa_broken"
    assert words in record.error


# --- who wrote it ------------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    run = subprocess.run(
        ["git", "-C", str(folder), *identity, *words], check=True, capture_output=True, text=True
    )
    return run.stdout.strip()


def test_author_and_commit_come_from_git(workspace: Path) -> None:
    write(workspace, "rules/odd_wait.py", rule("OddWait"))
    git(workspace, "init", "-q")
    git(workspace, "add", ".")
    git(workspace, "commit", "-q", "-m", "Add a rule")
    write(workspace, "rules/good.py", rule("Good"))
    registry = load(workspace)
    uncommitted, committed = with_history(registry.plugins, registry.root)
    assert (committed.author, committed.commit) == ("Ada", git(workspace, "rev-parse", "HEAD"))
    assert (uncommitted.author, uncommitted.commit) == ("", "")


def test_without_git_author_and_commit_stay_blank(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(workspace, "rules/odd_wait.py", rule("OddWait"))
    registry = load(workspace)
    assert with_history(registry.plugins, registry.root) == registry.plugins
    monkeypatch.setenv("PATH", "")
    assert with_history(registry.plugins, registry.root) == registry.plugins
