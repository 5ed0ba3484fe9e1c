"""What a kernel may cost the verifier: loops without end or without effect are cut off with a diagnostic."""

from __future__ import annotations

import pytest

from cake import cost
from cake.diagnostics import KernelErrors
from cake.ir import instantiate, parse
from cake.plugins import Registry
from cake.verify import check

HEAD = """@kernel(arch="sm_80")
def k(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        z = block
"""
TAIL = "        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)\n"
BAD = {
    "a loop that only counts": "        for i in range(10**15):\n            a = i\n".replace(
        "10**15", "1" + "0" * 15
    ),
    "a loop that advances by nothing": "        for i in range(0, 4, z):\n            a = i\n",
    "a division by zero": "        a = 1 // z\n",
    "a shift beyond 64 bits": "        a = 1 << (z + 99)\n",
}


@pytest.mark.parametrize("name", BAD)
def test_the_verifier_says_where(name: str, registry: Registry) -> None:
    (found,) = check(parse(HEAD + BAD[name] + TAIL), registry).diagnostics
    assert found.code == "type/no-value"
    assert found.primary.span.line == 6


@pytest.mark.parametrize("name", [n for n in BAD if "counts" not in n])
def test_the_cost_model_says_where(name: str, registry: Registry) -> None:
    instance = instantiate(parse(HEAD + BAD[name] + TAIL), {"N": 32}, primitives=registry.primitives)
    with pytest.raises(KernelErrors) as refused:
        cost.predict(instance, registry)
    assert refused.value.diagnostics[0].primary.span.line == 6


def test_a_long_run_is_cut_off_and_said_to_be_unchecked(registry: Registry) -> None:
    loop = "        for i in range(1000000):\n            v = load(x[:], vector=1, fill=0.0)\n"
    report = check(parse(HEAD + loop + TAIL), registry, dims={"N": 32})
    assert report.diagnostics == ()
    assert any("after 200000 instructions" in words for words in report.unchecked)
