"""The pages are true: each command they name exists, and each `console` block prints what it shows."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from cake.cli.app import COMMANDS, main

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (page.name, body)
        for page in PAGES
        for kind, body in BLOCK.findall(page.read_text())
        if kind == language
    ]


def sessions() -> list[tuple[str, str, list[str]]]:
    """(page, command, lines shown) for each `$ cake ...` in a console block."""
    found = []
    for page, body in blocks("console"):
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, *shown = part.rstrip("\n").split("\n")
            found.append((page, command, shown))
    return found


@pytest.mark.parametrize(("page", "command", "shown"), [pytest.param(*s, id=s[1]) for s in sessions()])
def test_a_console_block_prints_what_it_shows(page, command, shown, monkeypatch, capsys) -> None:
    """A line `...` stands for any lines, `...` inside a line for any text."""
    words = shlex.split(command)
    assert words[0] == "cake", f"{page}: only cake commands are run"
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "110")
    with pytest.raises(SystemExit):
        main(words[1:])
    said = capsys.readouterr()
    assert matches(said.out.rstrip().split("\n"), shown), f"{page}: {command}\n{said.out}{said.err}"


def matches(said: list[str], shown: list[str]) -> bool:
    if not shown or not said:
        return said == shown or shown == ["..."]
    if shown[0].strip() == "...":
        return matches(said, shown[1:]) or matches(said[1:], shown)
    pattern = "*".join(re.sub(r"([\[*?])", r"[\1]", piece) for piece in shown[0].rstrip().split("..."))
    return fnmatchcase(said[0].rstrip(), pattern) and matches(said[1:], shown[1:])


def test_every_command_that_a_page_names_exists() -> None:
    for page in PAGES:
        text = page.read_text()
        code = "\n".join([*(body for _, body in BLOCK.findall(text)), *re.findall(r"`([^`\n]+)`", text)])
        for command in re.findall(r"(?:^|\$ |/)cake ([a-z-]+)", code, re.MULTILINE):
            assert command in COMMANDS, f"{page.name} names `cake {command}`"


def test_every_command_is_on_the_first_page() -> None:
    text = (ROOT / "README.md").read_text()
    missing = [command for command in COMMANDS if f"cake {command}" not in text]
    assert missing == []


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"`?\bmake ([a-z]+(?:-[a-z]+)*)\b`", page.read_text()))
        named |= set(re.findall(r"^ *make ([a-z-]+)", page.read_text(), re.MULTILINE))
        assert named <= targets, f"{page.name}: {sorted(named - targets)}"


def test_the_two_commands_of_the_readme_are_those_of_ci() -> None:
    assert "make test\n" in (ROOT / ".ci" / "run").read_text()
    assert re.search(r"```sh\nmake evolve\b.*\nmake test\b", (ROOT / "README.md").read_text())


def test_ellipsis_matching() -> None:
    assert matches(["a", "b", "c"], ["...", "c"])
    assert matches(["a [x] 1.5 s"], ["a [x] ... s"])
    assert not matches(["a", "b"], ["a"])
    assert not matches(["ab"], ["a"])


def test_the_table_of_measured_kernels_is_that_of_the_raw_data() -> None:
    """bench/golden.py prints it."""
    from runpy import run_path

    table = run_path(str(ROOT / "bench" / "golden.py"))["table"]
    raw = ROOT / "history" / "measured" / "h200_golden_kernels.json"
    assert table(raw) in (ROOT / "docs" / "gpu.md").read_text()
