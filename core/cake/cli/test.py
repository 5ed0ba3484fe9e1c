"""`cake test`: the conformance engine on plugin files."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from cake.cli.console import print_json
from cake.conformance import Check, Failed, all_checks, checks_of_file
from cake.diagnostics import KernelErrors, render
from cake.errors import CakeError, ExitCode
from cake.plugins import find_workspace, load


def test(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Plugin files; without, every plugin of the workspace.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Run the tests that plugin files carry in their cases.

    Exit status 1 when any fails.
    """
    results = [_run(check) for check in _chosen(files or [])]
    failed = [result for result in results if result["failure"]]
    if json:
        print_json({"schema": 1, "ok": not failed, "checks": results})
    else:
        for result in results:
            print(f"{'FAIL' if result['failure'] else 'ok  '} {result['id']}")
            for line in result["failure"].splitlines():
                print(f"     {line}")
        print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    if failed:
        raise typer.Exit(ExitCode.REFUSED)


def _chosen(files: list[Path]) -> list[Check]:
    if not files:
        return all_checks(load())
    found: list[Check] = []
    for file in files:
        if not file.is_file():
            raise CakeError(f"{file}: no such file")
        root = find_workspace(file.resolve().parent)
        if root is None:
            raise CakeError(f"{file} lies in no workspace: no folder above it has plugins/ and rules/")
        found += checks_of_file(load(root), file)
    return found


def _run(check: Check) -> dict[str, Any]:
    """One check's outcome. Whatever a plugin raises is a failure of that plugin."""
    begun = perf_counter()
    failure = ""
    try:
        check.run()
    except Failed as failed:
        failure = str(failed)
    except KernelErrors as refusal:
        failure = render(refusal.diagnostics, refusal.source)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    return {"id": check.id, "failure": failure, "seconds": round(perf_counter() - begun, 4)}
