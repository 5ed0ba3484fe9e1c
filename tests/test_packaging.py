"""The wheel brings the plugins of this repository as its seed set, and works away from any checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cake.plugins import Registry

SEED = ("plugins", "rules", "tactics", "calibrations")


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    [path] = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_every_plugin_file(wheel: zipfile.ZipFile, root: Path) -> None:
    held = {name.removeprefix("cake/_seed/") for name in wheel.namelist() if name.startswith("cake/_seed/")}
    files = {
        path.relative_to(root).as_posix()
        for folder in SEED
        for path in (root / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == files


def test_the_seed_loads_away_from_any_checkout(
    wheel: zipfile.ZipFile, registry: Registry, tmp_path: Path
) -> None:
    wheel.extractall(tmp_path / "site")
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "cake.cli.app", "plugins", "--json"],
        cwd=tmp_path / "elsewhere",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    listing = json.loads(done.stdout)
    assert listing["root"] == str(tmp_path / "site" / "cake" / "_seed")
    assert {p["origin"] for p in listing["plugins"]} == {"seed"}
    assert [(p["kind"], p["name"]) for p in listing["plugins"]] == [
        (r.kind, r.name) for r in registry.plugins
    ]


def test_the_wheel_holds_what_the_core_reads_beside_its_modules(wheel: zipfile.ZipFile, root: Path) -> None:
    core = root / "core"
    data = {
        p.relative_to(core).as_posix()
        for p in core.rglob("*")
        if p.is_file() and p.suffix not in (".py", ".pyc")
    }
    assert data <= set(wheel.namelist())
