"""What people and agents are shown of one mutant of each golden kernel: text and JSON, letter for letter.

`make snapshots` rewrites tests/golden/diagnostics; a person reads the difference.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cake import verify
from cake.diagnostics import as_json, render
from cake.ir import parse
from cake.plugins import Registry
from tests.verify.test_mutants import KERNELS, MUTANTS, Mutant, mutated

SHOWN = Path(__file__).resolve().parents[1] / "golden" / "diagnostics"
CHOSEN = {
    "softmax_missing_sync": ("softmax", "cta_sync()", ""),
    "rmsnorm_phantoms": ("rmsnorm", "fill=0.0", "fill=1.0"),
    "gemm_sm80_shallow_wait": ("gemm_sm80", "cp_async_wait(STAGES - 2)", "cp_async_wait(STAGES - 1)"),
    "gemm_sm90a_early_release": ("gemm_sm90a", "wgmma_wait(0)", ""),
    "gemm_sm90a_missing_arrive": ("gemm_sm90a", "arrive(free[s])", ""),
    "gemm_sm90a_wrong_parity": ("gemm_sm90a", "wait(full[s], parity)", "wait(full[s], parity ^ 1)"),
}


def chosen(name: str) -> Mutant:
    edit = CHOSEN[name]
    return next(m for m in MUTANTS if (m.kernel, m.old, m.new) == edit)


@pytest.mark.parametrize("name", sorted(CHOSEN))
def test_diagnostics_are_shown_as_recorded(
    name: str, registry: Registry, pytestconfig: pytest.Config
) -> None:
    mutant = chosen(name)
    kernel = parse(mutated((KERNELS / f"{mutant.kernel}.cake").read_text(), mutant), f"{mutant.kernel}.cake")
    report = verify.check(kernel, registry)
    plain = json.dumps(as_json(report.diagnostics, kernel.source), indent=2)
    said = {
        SHOWN / f"{name}.txt": render(report.diagnostics, kernel.source) + "\n",
        SHOWN / f"{name}.json": plain + "\n",
    }
    for path, text in said.items():
        if pytestconfig.getoption("--write-snapshots"):
            path.write_text(text)
        assert path.is_file(), "not recorded: `make snapshots`, then read it"
        assert text == path.read_text()


def test_nothing_recorded_is_stale() -> None:
    assert {path.stem for path in SHOWN.iterdir()} == set(CHOSEN)
