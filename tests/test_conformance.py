"""The tests that plugin files carry, one a case: `kind/slug/case`; and the engine itself on small plugins."""

from __future__ import annotations

from pathlib import Path

import pytest

from cake.conformance import Check, Failed, all_checks, docstring_sections
from cake.conformance.support import compare, read_marks
from cake.plugins import load

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("check", [pytest.param(check, id=check.id) for check in all_checks(load(ROOT))])
def test_plugin(check: Check) -> None:
    check.run()


def test_marks_are_taken_off_the_lines_they_end() -> None:
    marked = read_marks(
        """
        a = 1  #! sync/one, mem/two
        b = 2  # a comment stays
        c = 3  #> written here
        d = 4  #!
        """,
        own_code="sync/own",
    )
    assert marked.text == "a = 1\nb = 2  # a comment stays\nc = 3\nd = 4\n"
    assert marked.faults == {(1, "sync/one"), (1, "mem/two"), (4, "sync/own")}
    assert marked.seconds == ((3, "written here"),)


def test_headings_stand_at_the_start_of_a_line() -> None:
    text = "Title\n\nFinds: one\n  two\nWhy (copy engine): x\n\n## Mend\nThe Source: y\n"
    sections = docstring_sections(text, ("Finds", "Why", "Mend", "Source"))
    assert sections == {"": "Title", "Finds": "one\n  two", "Why": "x", "Mend": "The Source: y", "Source": ""}


def test_compare_measures_against_the_largest_value() -> None:
    compare([1.0, 100.0], [1.05, 100.0], 1e-3, "y")
    with pytest.raises(Failed, match=r"y\[0\] is 1, expected 1.05 \(1 of 2 differ\)"):
        compare([1.0, 100.0], [1.05, 100.0], 1e-4, "y")


def test_compare_wants_infinities_and_nan_in_their_places() -> None:
    inf, nan = float("inf"), float("nan")
    compare([inf, nan, 1.0], [inf, nan, 1.0], 0.0, "y")
    for wrong in ([-inf, nan, 1.0], [inf, 0.0, 1.0], [inf, nan, nan]):
        with pytest.raises(Failed):
            compare(wrong, [inf, nan, 1.0], 0.5, "y")
