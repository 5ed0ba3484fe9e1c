"""What is refused rather than passed: nothing executed, no end, and misuse that no golden kernel shows."""

from __future__ import annotations

import pytest

from cake.ir import parse
from cake.plugins import Registry
from cake.verify import check

HEAD = '@kernel(arch="sm_80")\ndef k(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):\n'
ROW = '    grid(M)\n    with role("r", warps=1):\n'
STORE = "        store(y[block, :], load(x[block, :], vector=1, fill=0.0), vector=1)\n"
CASES = {
    "a contract that no small shape meets": (
        HEAD + "    require(N > 1000000)\n" + ROW + STORE,
        "contract/unexecuted",
        3,
    ),
    "a run without end": (
        HEAD
        + ROW
        + "        for i in range(1000000):\n            v = load(x[block, :], vector=1, fill=0.0)\n"
        + STORE,
        "machine/runaway",
        6,
    ),
    "an output that nothing wrote": (
        HEAD + ROW + STORE + "        v = load(y[(block + 1) % blocks, :], vector=1, fill=0.0)\n",
        "mem/uninitialized-read",
        6,
    ),
    "a named barrier that is none": (
        HEAD + ROW + "        named_sync(15 + block + 1, warps=1)\n" + STORE,
        "machine/barrier-id",
        5,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_at_its_line(name: str, registry: Registry) -> None:
    text, code, line = CASES[name]
    report = check(parse(text), registry)
    assert [(d.code, d.primary.span.line) for d in report.diagnostics] == [(code, line)]
    assert not report.ok
