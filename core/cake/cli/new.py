"""`cake new`: the file of a new plugin, whose generated tests run at once and say what to fill in."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from re import fullmatch
from string import Template
from typing import Annotated

import typer

from cake.errors import CakeError
from cake.plugins import KINDS, SLUG, camel, find_workspace, load, snake


class Scaffold(StrEnum):
    """The kinds that have a scaffold: one file `scaffolds/KIND.txt` each."""

    rule = "rule"
    primitive = "primitive"
    tactic = "tactic"
    calibration = "calibration"
    task = "task"


def new(
    kind: Annotated[Scaffold, typer.Argument(help="What to write.")],
    name: Annotated[str, typer.Argument(help="Its name, such as unfenced_tma_store or UnfencedTmaStore.")],
) -> None:
    """Write the file of a new plugin, whose generated tests run at once.

    They fail by design and name what to fill in; `cake test FILE` runs them.
    """
    root = find_workspace(Path.cwd())
    if root is None:
        raise CakeError("this folder is in no workspace: no folder above it has plugins/ and rules/")
    slug = slug_of(name)
    path = root / KINDS[kind].folder / f"{slug}.py"
    text = scaffold(kind, slug, _device_and_concern(root, slug) if kind is Scaffold.calibration else {})
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CakeError(f"{path.relative_to(root)} exists already; choose another name") from None
    shown = path.relative_to(root)
    print(f"wrote {shown}\nnext: cake test {shown}")


def slug_of(name: str) -> str:
    """The slug for a name in any spelling. Raises CakeError for what no file or class can be called."""
    spelled = snake(name) if name.isidentifier() and name[:1].isupper() and "_" not in name else name
    slug = spelled.replace("-", "_").lower()
    if len(slug) > 80 or not fullmatch(SLUG, slug):
        raise CakeError(
            f"{name[:80]!r} cannot name a plugin: use words of letters and digits joined by underscores, "
            "each begun by a letter, such as unfenced_tma_store"
        )
    return slug


def scaffold(kind: str, slug: str, words: dict[str, str]) -> str:
    """The text of a new plugin file."""
    template = Path(__file__).with_name("scaffolds") / f"{kind}.txt"
    text = Template(template.read_text(encoding="utf-8"))
    return text.substitute(slug=slug, code=slug.replace("_", "-"), class_name=camel(slug), **words)


def _device_and_concern(root: Path, slug: str) -> dict[str, str]:
    devices = load(root).devices
    for name in devices:
        stem = name.lower()
        if slug.startswith(f"{stem}_"):
            return {"device": name, "concern": slug.removeprefix(f"{stem}_")}
    known = ", ".join(name.lower() for name in devices) or "none"
    raise CakeError(f"{slug}: a calibration is called DEVICE_CONCERN; known devices: {known}")
