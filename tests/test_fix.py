"""`cake check --fix` and `--format sarif`: edits that mend, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cake.cli.app import main
from cake.cli.fix import mended, replace_file
from cake.diagnostics import Diagnostic, Edit, Span, apply, error
from cake.errors import MissingEnvironment

UNFENCED = Path(__file__).resolve().parents[1] / "docs" / "examples" / "unfenced.cake"


@pytest.fixture
def cake(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run a command: its exit status, and what it said on both streams."""

    def call(*words: object) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    return call


def test_the_file_is_mended_and_keeps_its_mode(tmp_path: Path, cake: Callable[..., tuple[int, str]]) -> None:
    file = tmp_path / "k.cake"
    file.write_text(UNFENCED.read_text())
    file.chmod(0o640)
    status, said = cake("check", "--fix", str(file))
    assert status == 0
    assert "fixed" in said
    assert file.read_text().count("fence_async()") == UNFENCED.read_text().count("fence_async()") + 1
    assert file.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["k.cake"]


def test_the_difference_alone_writes_nothing(tmp_path: Path, cake: Callable[..., tuple[int, str]]) -> None:
    file = tmp_path / "k.cake"
    file.write_text(UNFENCED.read_text())
    status, said = cake("check", "--diff", str(file))
    assert status == 1
    assert "+        fence_async()" in said
    assert file.read_text() == UNFENCED.read_text()


def test_what_is_right_stays_as_it_is(tmp_path: Path, cake: Callable[..., tuple[int, str]]) -> None:
    file = tmp_path / "k.cake"
    file.write_text((UNFENCED.parents[2] / "plugins" / "kernels" / "softmax.cake").read_text())
    before = file.stat().st_mtime_ns
    assert cake("check", "--fix", str(file))[0] == 0
    assert file.stat().st_mtime_ns == before


def test_an_edit_that_does_not_help_is_not_made() -> None:
    wrong = error("sync/x", "never gone", Span(1, 0, 1, 1))
    offers = Diagnostic(wrong.code, wrong.message, wrong.primary, fix=(Edit(Span(1, 0, 1, 0), "y\n"),))
    assert mended("a\n", lambda text: [offers]) == ("a\n", [])


def test_a_folder_that_cannot_be_written_leaves_the_file(tmp_path: Path) -> None:
    with pytest.raises(MissingEnvironment, match="the file is as it was"):
        replace_file(tmp_path / "gone" / "k.cake", "text")


def test_edits_are_made_from_the_front_and_overlaps_once() -> None:
    edits = [Edit(Span(2, 1, 2, 3), "XY"), Edit(Span(1, 0, 1, 0), "> "), Edit(Span(2, 2, 2, 4), "no")]
    assert apply("ab\ncdef\n", edits) == "> ab\ncXYf\n"


def test_sarif_names_rule_place_and_fix(cake: Callable[..., tuple[int, str]]) -> None:
    status, said = cake("check", "--format", "sarif", str(UNFENCED))
    assert status == 1
    document = json.loads(said)
    (ran,) = document["runs"]
    assert document["version"] == "2.1.0"
    (result,) = ran["results"]
    assert ran["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    region = result["locations"][0]["physicalLocation"]["region"]
    line = UNFENCED.read_text().split("\n")[region["startLine"] - 1]
    assert line[region["startColumn"] - 1 : region["endColumn"] - 1].startswith("tma_store(")
    (change,) = result["fixes"][0]["artifactChanges"]
    assert change["replacements"][0]["insertedContent"]["text"].strip() == "fence_async()"
    assert result["relatedLocations"]
