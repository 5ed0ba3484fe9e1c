"""`cake check`: verification of kernel files, without a GPU."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cake.cli.console import parse_constants, parse_dims, print_json, read_text, workspace_plugins
from cake.cli.fix import difference, mended, replace_file
from cake.cli.sarif import document
from cake.diagnostics import Diagnostic, KernelErrors, Source, as_json, render
from cake.errors import CakeError, ExitCode
from cake.ir import parse
from cake.plugins import Registry
from cake.verify import Report
from cake.verify import check as verify


class Format(StrEnum):
    """How diagnostics are shown."""

    text = "text"
    json = "json"
    sarif = "sarif"


def check(
    files: Annotated[list[Path], typer.Argument(help="Kernel files; `-` reads standard input.")],
    format: Annotated[
        Format, typer.Option(help="Text for people, or the same facts as JSON or SARIF 2.1.0.")
    ] = Format.text,
    arch: Annotated[
        str | None, typer.Option(help="Check for this architecture, which the kernel must claim.")
    ] = None,
    dim: Annotated[
        list[str] | None, typer.Option(help="A dimension, as M=128; without, small covering shapes.")
    ] = None,
    constant: Annotated[list[str] | None, typer.Option(help="A constant over its default, as BM=64.")] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Make the edits that are certain to mend.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show these edits, and write nothing.")] = False,
) -> None:
    """Judge kernels without a GPU: types, rules, the machine's facts.

    Exit status 1 when any kernel has an error.
    """
    dims, constants = parse_dims(dim or ()), parse_constants(constant or ())
    texts = [(path, read_text(path)) for path in files]
    registry = workspace_plugins()
    if fix or diff:
        given = (registry, arch, dims, constants)
        texts = [(path, _mend(path, text, given, only_show=diff)) for path, text in texts]
    results = [_judge(registry, str(path), text, arch, dims, constants) for path, text in texts]
    if format is Format.sarif:
        print_json(document(results, registry))
    elif format is Format.json:
        print_json({"schema": 1, "ok": all(r["ok"] for r in results), "files": [_plain(r) for r in results]})
    else:
        print("\n\n".join(_shown(result) for result in results))
    if not all(result["ok"] for result in results):
        raise typer.Exit(ExitCode.REFUSED)


Given = tuple[Registry, str | None, dict[str, int], dict[str, int | float]]


def _mend(path: Path, text: str, given: Given, *, only_show: bool) -> str:
    """The text with its fixes made, written back unless they are only shown; what was done goes to stderr."""
    if str(path) == "-" and not only_show:
        raise CakeError("--fix writes files; `--fix --diff -` shows the edits of standard input")
    registry, arch, dims, constants = given

    def judge(changed: str) -> tuple[Diagnostic, ...]:
        found: tuple[Diagnostic, ...] = _judge(registry, str(path), changed, arch, dims, constants)[
            "diagnostics"
        ]
        return found

    after, done = mended(text, judge)
    if after == text:
        return text
    if only_show:
        print(difference(str(path), text, after))
        return text
    replace_file(path, after)
    for diagnostic in done:
        place = diagnostic.primary.span
        print(f"fixed {path}:{place.line}: {diagnostic.code}: {diagnostic.help}", file=sys.stderr)
    return after


def _judge(
    registry: Registry,
    path: str,
    text: str,
    arch: str | None,
    dims: dict[str, int],
    constants: dict[str, int | float],
) -> dict[str, Any]:
    """What verification says about one kernel, or why it could not begin."""
    try:
        kernel = parse(text, path)
        report = verify(kernel, registry, dims=dims or None, constants=constants, arch=arch)
    except KernelErrors as refusal:
        return _result(path, refusal.source, refusal.diagnostics, ok=False)
    return _result(path, kernel.source, report.diagnostics, ok=report.ok, report=report)


def _result(
    path: str, source: Source, diagnostics: tuple[Diagnostic, ...], *, ok: bool, report: Report | None = None
) -> dict[str, Any]:
    return {
        "file": path,
        "ok": ok,
        "source": source,
        "diagnostics": diagnostics,
        "instances": [str(i) for i in report.instances] if report else [],
        "unchecked": [str(u) for u in report.unchecked] if report else [],
    }


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    return {
        "file": result["file"],
        "ok": result["ok"],
        "diagnostics": as_json(result["diagnostics"], result["source"]),
        "instances": result["instances"],
        "unchecked": result["unchecked"],
    }


def _shown(result: dict[str, Any]) -> str:
    """The diagnostics, then one line that sums them up."""
    parts = [render(result["diagnostics"], result["source"])] if result["diagnostics"] else []
    counts = [
        f"{number} {severity}{'s' if number > 1 else ''}"
        for severity in ("error", "warning", "note")
        if (number := sum(d.severity == severity for d in result["diagnostics"]))
    ]
    number = len(result["instances"])
    seen = f"run on {number} shape{'s' if number > 1 else ''}" if number else "not run"
    verdict = "ok" if result["ok"] else "refused"
    summary = f"{result['file']}: {', '.join([verdict, *counts])} ({seen})"
    return "\n\n".join([*parts, "\n".join([summary, *(f"unchecked: {u}" for u in result["unchecked"])])])
