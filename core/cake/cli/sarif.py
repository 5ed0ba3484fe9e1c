"""Diagnostics as SARIF 2.1.0, for editors and code review: https://docs.oasis-open.org/sarif/sarif/v2.1.0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from cake.diagnostics import Diagnostic, Edit, Label, Span
from cake.kinds.rule import Rule
from cake.plugins import Registry

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def document(results: Sequence[Mapping[str, Any]], registry: Registry) -> dict[str, Any]:
    """One run over all files. `results` as `cake check` keeps them: file, diagnostics, unchecked."""
    said = [(str(r["file"]), d) for r in results for d in r["diagnostics"]]
    codes = sorted({d.code for _, d in said})
    notes = [f"{r['file']}: {words}" for r in results for words in r["unchecked"]]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "cake",
                        "version": version("cake-kernels"),
                        "rules": [_rule(code, registry.rules.get(code)) for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "toolExecutionNotifications": [
                            {"level": "note", "message": {"text": f"unchecked: {note}"}} for note in notes
                        ],
                    }
                ],
                "results": [_result(path, d, codes.index(d.code)) for path, d in said],
            }
        ],
    }


def _rule(code: str, rule: Rule | None) -> dict[str, Any]:
    found: dict[str, Any] = {"id": code}
    if rule is not None:
        import sys

        doc = (sys.modules[type(rule).__module__].__doc__ or "").strip()
        title, _, rest = doc.partition("\n")
        found |= {"name": type(rule).__name__, "shortDescription": {"text": title}}
        found |= {"fullDescription": {"text": rest.strip() or title}}
    return found


def _result(path: str, diagnostic: Diagnostic, index: int) -> dict[str, Any]:
    words = [diagnostic.message, *diagnostic.path]
    words += [f"seen with: {diagnostic.instance}"] if diagnostic.instance else []
    words += [f"help: {diagnostic.help}"] if diagnostic.help else []
    found: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "ruleIndex": index,
        "level": diagnostic.severity,
        "message": {"text": "\n".join(words)},
        "locations": [_location(path, diagnostic.primary)],
    }
    if diagnostic.secondary:
        found["relatedLocations"] = [_location(path, label) for label in diagnostic.secondary]
    if diagnostic.fix:
        found["fixes"] = [_fix(path, diagnostic.help, diagnostic.fix)]
    return found


def _location(path: str, label: Label) -> dict[str, Any]:
    found: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": path}, "region": _region(label.span)}
    }
    if label.message:
        found["message"] = {"text": label.message}
    return found


def _region(span: Span) -> dict[str, int]:
    """SARIF counts lines and columns from 1, the end exclusive. What has no place is at the file's start."""
    line = max(1, span.line)
    return {
        "startLine": line,
        "startColumn": span.column + 1,
        "endLine": max(line, span.end_line),
        "endColumn": span.end_column + 1,
    }


def _fix(path: str, words: str, edits: Iterable[Edit]) -> dict[str, Any]:
    changes = [{"deletedRegion": _region(e.span), "insertedContent": {"text": e.text}} for e in edits]
    return {
        "description": {"text": words},
        "artifactChanges": [{"artifactLocation": {"uri": path}, "replacements": changes}],
    }
