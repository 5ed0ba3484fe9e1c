"""The compiler half imports nothing but the standard library, numpy, ml_dtypes, pluggy and cuda-python.

Also run by `make test-bare`, in an environment that has nothing else.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())
HALF = [
    module.removeprefix("cake.")
    for module in PROJECT["tool"]["importlinter"]["contracts"][0]["source_modules"]
]

IMPORT_ALL = f"""
import importlib, pkgutil, sys
for name in {HALF!r}:
    module = importlib.import_module(f"cake.{{name}}")
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"cake.{{name}}."):
        importlib.import_module(found.name)
allowed = {{"cake", "cake_plugins", "numpy", "ml_dtypes", "pluggy", "cuda"}} | set(sys.stdlib_module_names)
hidden = {{"pathfinder"}}
found = {{
    name.partition(".")[0]
    for name, module in list(sys.modules.items())
    if "site-packages" in (getattr(module, "__file__", None) or "") and not name.startswith("_")
}}
print(*sorted(found - allowed - hidden))
"""

EACH_FIRST = "import importlib, sys; importlib.import_module(sys.argv[1])"


def run(script: str, *words: str) -> str:
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_compiler_half_imports_nothing_else() -> None:
    assert run(IMPORT_ALL) == ""


def test_each_part_can_be_imported_first() -> None:
    """No part depends on another having been imported before it."""
    script = "import subprocess, sys\n" + "\n".join(
        f"subprocess.run([sys.executable, '-c', {EACH_FIRST!r}, 'cake.{name}'], check=True)" for name in HALF
    )
    run(script)
