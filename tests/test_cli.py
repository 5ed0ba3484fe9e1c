"""The command line: lazy, one message a failure, and an exit status that means something."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from time import perf_counter

import pytest

from cake.cli.app import COMMANDS, guarded, main
from cake.diagnostics import KernelErrors, Source, Span, error
from cake.errors import BrokenPlugin, CakeError, MissingEnvironment, Refused


def cake(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code


def raising(failure: BaseException):
    def action() -> None:
        raise failure

    return action


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (CakeError("no such task"), 2),
        (Refused("not good enough"), 1),
        (MissingEnvironment("no GPU"), 3),
        (BrokenPlugin("rules/x.py:1"), 4),
        (KernelErrors([error("syntax/python", "bad", Span(1, 0, 1, 1))], Source("k.cake", "x")), 1),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "k.cake"), 2),
        (PermissionError(errno.EACCES, "Permission denied", "k.cake"), 2),
        (OSError(errno.EROFS, "Read-only file system", "db"), 3),
        (OSError(errno.ENOSPC, "No space left on device"), 3),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("a fault"), 4),
    ],
)
def test_a_failure_has_one_message_and_a_meant_status(failure, status, capsys) -> None:
    assert guarded(raising(failure)) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.strip()
    if not isinstance(failure, ZeroDivisionError):
        assert "Traceback" not in said.err


def test_every_command_is_where_the_table_says_and_helps_alike() -> None:
    for command, (module, summary) in COMMANDS.items():
        function = getattr(import_module(module), command.replace("-", "_"))
        assert (function.__doc__ or "").partition("\n")[0] == summary, command


def test_help_names_every_command(capsys) -> None:
    assert cake("--help") == 0
    said = capsys.readouterr().out
    assert all(command in said for command in COMMANDS)


def test_help_is_fast_because_it_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom cake.cli.app import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(*sorted({'numpy', 'sqlmodel', 'langgraph', 'git', 'cuda', 'cake.ir'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
    times = []
    for _ in range(3):
        begun = perf_counter()
        subprocess.run([sys.executable, "-m", "cake.cli.app", "--help"], capture_output=True, check=True)
        times.append(perf_counter() - begun)
    assert min(times) < 2.0, "a generous limit for a busy machine; 0.25 s when it is idle"


@pytest.mark.parametrize(
    "words",
    [
        ("bogus",),
        ("plugins", "--bogus"),
        ("plugins", "--kind", "x"),
        ("explain", "no-such"),
        ("new", "x", "y"),
    ],
)
def test_wrong_usage_is_status_2(words, root: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(root)
    assert cake(*words) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_version(capsys) -> None:
    assert cake("--version") == 0
    assert capsys.readouterr().out.startswith("cake ")


# --- check -------------------------------------------------------------------------------------------------

COPY = """
@kernel(arch="sm_80")
def copy(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    grid(M)
    with role("row", warps=1):
        store(y[block, :], load(x[block, :]))
"""


@pytest.fixture
def kernel(tmp_path: Path, root: Path, monkeypatch) -> Path:
    monkeypatch.chdir(root)
    path = tmp_path / "copy.cake"
    path.write_text(COPY)
    return path


def test_check_accepts_a_good_kernel(kernel: Path, capsys) -> None:
    assert cake("check", str(kernel), "--dim", "M=2", "--dim", "N=64") == 0
    assert "copy.cake: ok" in capsys.readouterr().out


def test_check_shows_the_place_at_fault(kernel: Path, capsys) -> None:
    kernel.write_text(COPY.replace("load(", "laod("))
    assert cake("check", str(kernel)) == 1
    said = capsys.readouterr().out
    assert f"{kernel}:6:" in said
    assert "laod" in said


def test_check_tells_scripts_the_same(kernel: Path, capsys) -> None:
    kernel.write_text(COPY.replace("load(", "laod("))
    assert cake("check", str(kernel), "--format", "json") == 1
    document = json.loads(capsys.readouterr().out)
    [file] = document["files"]
    assert document["ok"] is file["ok"] is False
    assert file["diagnostics"][0]["primary"]["line"] == 6


@pytest.mark.parametrize(
    "option", [("--dim", "M"), ("--dim", "M=x"), ("--dim", "M=" + "9" * 5000), ("--constant", "A=z")]
)
def test_check_refuses_bad_options(kernel: Path, option, capsys) -> None:
    assert cake("check", str(kernel), *option) == 2
    assert len(capsys.readouterr().err) < 500


def test_check_refuses_what_it_cannot_read(kernel: Path, capsys) -> None:
    assert cake("check", "no-such.cake") == 2
    kernel.write_bytes(b"\xff\xfe\x00")
    assert cake("check", str(kernel)) == 2
    assert cake("check", str(kernel.parent)) == 2


def test_check_knows_its_architectures(kernel: Path, capsys) -> None:
    assert cake("check", str(kernel), "--arch", "sm_7") == 1
    assert "unknown architecture" in capsys.readouterr().out


# --- explain, new, test ------------------------------------------------------------------------------------


def test_explain_prints_a_rule_by_code_slug_and_file(root: Path, registry, monkeypatch, capsys) -> None:
    monkeypatch.chdir(root)
    code = next(iter(registry.rules))
    slug = code.partition("/")[2]
    said = []
    for name in (code, slug, slug.replace("-", "_")):
        assert cake("explain", name) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2]
    assert "Mend" in said[0]


@pytest.fixture
def workspace(tmp_path: Path, root: Path, monkeypatch) -> Path:
    for folder in ("plugins", "rules", "tactics", "calibrations"):
        (tmp_path / folder).symlink_to(root / folder)
    for folder in ("rules", "tactics", "calibrations"):
        (tmp_path / folder).unlink()
        (tmp_path / folder).mkdir()
    (tmp_path / "plugins").unlink()
    (tmp_path / "plugins").mkdir()
    for folder in ("primitives", "devices"):
        (tmp_path / "plugins" / folder).mkdir()
        for path in (root / "plugins" / folder).glob("*.py"):
            (tmp_path / "plugins" / folder / path.name).write_text(path.read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "name", "folder"),
    [
        ("rule", "OddWait", "rules"),
        ("tactic", "odd-move", "tactics"),
        ("primitive", "odd_load", "plugins/primitives"),
        ("calibration", "h200_odd", "calibrations"),
        ("task", "odd_sum", "plugins/tasks"),
    ],
)
def test_a_new_plugin_loads_and_its_tests_say_what_to_fill_in(workspace, kind, name, folder, capsys) -> None:
    assert cake("new", kind, name) == 0
    wrote = capsys.readouterr().out.split()[1]
    assert wrote.startswith(f"{folder}/")
    assert cake("test", wrote) == 1
    said = capsys.readouterr()
    assert said.err == ""
    assert "fill in the first line" in said.out
    assert "/loads" not in said.out
    assert cake("new", kind, name) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "2fast", "a b", "../x", "a__b", "x" * 200, "déjà"])
def test_a_plugin_cannot_be_called_anything(workspace, name, capsys) -> None:
    assert cake("new", "rule", name) == 2
    assert not list((workspace / "rules").iterdir())


def test_test_refuses_files_that_are_no_plugins(workspace: Path, tmp_path: Path, capsys) -> None:
    (workspace / "other.py").write_text("'''Doc'''")
    assert cake("test", "other.py") == 2
    assert cake("test", "no-such.py") == 2


def test_test_reports_a_broken_plugin(workspace: Path, capsys) -> None:
    (workspace / "rules" / "bad.py").write_text("'''Doc'''\n1/0\n")
    assert cake("test", "rules/bad.py") == 1
    assert "rules/bad.py:2: ZeroDivisionError" in capsys.readouterr().out


def test_plugins_lists_the_broken_and_says_so_by_its_status(workspace: Path, capsys) -> None:
    (workspace / "rules" / "bad.py").write_text("'''Doc'''\n1/0\n")
    assert cake("plugins", "--json", "--kind", "rule") == 4
    [record] = json.loads(capsys.readouterr().out)["plugins"]
    assert (record["path"], record["line"]) == ("rules/bad.py", 2)
