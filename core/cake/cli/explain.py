"""`cake explain`: the documentation that a plugin carries in its docstring."""

from __future__ import annotations

import ast
import difflib
import inspect
from typing import Annotated

import typer

from cake.cli.console import print_json, workspace_plugins
from cake.errors import CakeError
from cake.plugins import KINDS, Registry


def explain(
    name: Annotated[str, typer.Argument(help="A rule's code (sync/unfenced-tma-store) or a plugin's name.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Print what a rule, primitive, tactic or other plugin is about."""
    registry = workspace_plugins()
    found = [(kind, known, documentation(registry, kind, known)) for kind, known in find(registry, name)]
    if json:
        plugins = [{"kind": kind, "name": known, "text": text} for kind, known, text in found]
        print_json({"schema": 1, "plugins": plugins})
        return
    print("\n\n".join(f"{kind} {known}\n\n{text}" for kind, known, text in found))


def find(registry: Registry, name: str) -> list[tuple[str, str]]:
    """Kinds and names of the plugins that answer to `name`; a rule also answers to its slug.

    Raises CakeError naming the nearest ones.
    """
    wanted = name.strip().lower()
    found: list[tuple[str, str]] = []
    names: set[str] = set()
    for kind in KINDS:
        for known in registry.of(kind):
            slug = known.lower().rpartition("/")[2]
            names.update((known, slug))
            if wanted in (known.lower(), slug, slug.replace("-", "_")):
                found.append((kind, known))
    if found:
        return found
    near = difflib.get_close_matches(wanted, sorted(names), n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; `cake plugins` lists them all"
    raise CakeError(f"nothing is called {name!r}{hint}")


def documentation(registry: Registry, kind: str, name: str) -> str:
    """The docstring of the plugin's file, then that of its class where it has its own."""
    [record] = [r for r in registry.plugins if (r.kind, r.name) == (kind, name) and not r.error]
    text = (registry.root / record.path).read_text(encoding="utf-8")
    made = type(registry.of(kind)[name])
    # An object of the kind's own class (a calibration) would only repeat what the kind is.
    own = "" if made is KINDS[kind].base else inspect.cleandoc(vars(made).get("__doc__") or "")
    return "\n\n".join(part for part in (ast.get_docstring(ast.parse(text)), own) if part)
