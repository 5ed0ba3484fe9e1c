"""What commands share: the workspace's plugins, tables, JSON, and `NAME=value` options."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cake.errors import CakeError
from cake.plugins import Registry, load

_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?", re.ASCII)


def workspace_plugins(root: Path | None = None) -> Registry:
    """The plugins of the workspace around the current folder; those switched off are named on stderr."""
    registry = load(root)
    for record in registry.broken:
        print(f"warning: {record.path}:{record.line}: switched off: {record.error}", file=sys.stderr)
    return registry


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A table for people on a terminal; in a pipe one line a row, columns padded, without a frame."""
    texts = [[str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*columns, title=title or None, title_justify="left")
        for row in texts:
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)
        return
    widths = [max(len(cell) for cell in column) for column in zip(columns, *texts, strict=True)]
    for row in [list(columns), *texts]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_json(document: Any) -> None:
    """One JSON document on standard output, keys in their given order."""
    print(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def parse_dims(options: Sequence[str]) -> dict[str, int]:
    """`["M=128", "N=64"]` as a mapping. Raises CakeError for anything else."""
    dims = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name.isidentifier() or not value.isascii() or not value.isdigit():
            raise CakeError(f"--dim {option}: expected NAME=INTEGER, such as M=128")
        if len(value) > 18:
            raise CakeError(f"--dim {name}: {value[:20]}... is beyond 2^63")
        dims[name] = int(value)
    return dims


def parse_constants(options: Sequence[str]) -> dict[str, int | float]:
    """`["BM=64", "scale=0.5"]` as a mapping. Raises CakeError for anything else."""
    constants: dict[str, int | float] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name.isidentifier() or not _NUMBER.fullmatch(value):
            raise CakeError(f"--constant {option[:60]}: expected NAME=NUMBER, such as BM=64")
        constants[name] = float(value) if "." in value else int(value)
    return constants


def read_text(path: Path) -> str:
    """A kernel's text; `-` reads standard input. Raises CakeError that names the file."""
    try:
        if str(path) == "-":
            return sys.stdin.read()
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CakeError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise CakeError(f"cannot read {path}: {error.strerror}") from None
