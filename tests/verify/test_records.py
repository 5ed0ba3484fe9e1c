"""Failures that were reported in public: each reduced kernel is refused at its line, its mend is not.

`records/ID.cake` holds the kernel, `#! code` on its faulty lines; `records/ID.mended.cake` its mend. A first
line `# dims: M=64 N=8` pins the shape; without one the verifier has to find the shape that shows it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cake.conformance.support import expect_marked, expect_silent, read_marks
from cake.plugins import Registry

RECORDS = Path(__file__).parent / "records"
IDS = sorted(path.stem for path in RECORDS.glob("*.cake") if "." not in path.stem)


def text_of(name: str) -> tuple[str, dict[str, int]]:
    """A kernel of the folder, and the dims that its first line pins."""
    text = (RECORDS / f"{name}.cake").read_text(encoding="utf-8")
    pinned = re.match(r"# dims:((?: \w+=\d+)+)\n", text)
    words = pinned[1].split() if pinned else []
    return text, {word.partition("=")[0]: int(word.partition("=")[2]) for word in words}


@pytest.mark.parametrize("record", IDS)
def test_the_kernel_is_refused_at_its_line(record: str, registry: Registry) -> None:
    text, dims = text_of(record)
    expect_marked(registry, read_marks(text, ""), dims, f"{record}.cake")


@pytest.mark.parametrize("record", IDS)
def test_its_mend_is_not(record: str, registry: Registry) -> None:
    text, dims = text_of(f"{record}.mended")
    expect_silent(registry, text, dims, f"{record}.mended.cake")
