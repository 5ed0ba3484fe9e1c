"""Instances: contracts, architectures, memory layout and types refuse at the place."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from cake.diagnostics import Diagnostic, KernelErrors
from cake.ir import instantiate, parse
from cake.ir.arch import ARCHS, admits, claimed
from cake.plugins import Registry

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "plugins" / "kernels"


def refused(
    text: str, registry: Registry, dims: dict[str, int], arch: str | None = None
) -> tuple[Diagnostic, ...]:
    with pytest.raises(KernelErrors) as errors:
        instantiate(parse(text), dims, primitives=registry.primitives, arch=arch)
    return errors.value.diagnostics


def test_a_violated_contract_names_the_stride(registry: Registry) -> None:
    text = (KERNELS / "gemm_sm90a.cake").read_text()
    (diagnostic,) = refused(text, registry, {"M": 4095, "N": 1000, "K": 777})
    assert diagnostic.code == "contract/violated"
    assert "row stride of `a` is 1554 bytes" in diagnostic.message
    assert "pad K to 784" in diagnostic.help


def test_shared_memory_is_packed_without_overlap(registry: Registry) -> None:
    kernel = parse((KERNELS / "gemm_sm90a.cake").read_text())
    instance = instantiate(kernel, {"M": 256, "N": 256, "K": 256}, primitives=registry.primitives)
    spans = [(b.offset, b.bytes) for b in instance.buffers.values() if b.space == "shared"]
    spans += [(b.offset, 8 * b.count) for b in instance.barriers.values()]
    spans.sort()
    for (offset, size), (following, _) in pairwise(spans):
        assert offset + size <= following
    assert instance.shared_bytes == spans[-1][0] + spans[-1][1]
    assert all(b.offset % 1024 == 0 for b in instance.buffers.values() if b.swizzle)
    assert instance.threads == 384
    assert instance.blocks == 4


def test_claims_follow_the_architecture_suffix() -> None:
    assert claimed("sm_80") == ARCHS
    assert claimed("sm_90a") == ("sm_90a",)
    assert admits(">=sm_90", "sm_100a")
    assert not admits("sm_90a", "sm_100a")


HEAD = """@kernel(arch="sm_80")
def k(x: Global[f32, N], y: GlobalOut[f32, N], *, W=1):
    grid(1)
    s = Shared[f32, 32]
"""
ROLE = HEAD + '    with role("r", warps=W):\n'
WRONG = {
    "no role": (HEAD, "type/no-role"),
    "no grid": (ROLE.replace("    grid(1)\n", "") + "        a = 1\n", "type/grid"),
    "unknown name": (ROLE + "        a = blokc + 1\n", "type/unknown-name"),
    "unknown primitive": (ROLE + "        laod(x[:])\n", "type/unknown-primitive"),
    "too many axes": (ROLE + "        v = load(x[0, 0])\n", "type/index"),
    "window too large": (ROLE + "        v = load(s[0:+64])\n", "type/index"),
    "assign a dimension": (ROLE + "        N = 3\n", "type/assign"),
    "assign a top-level name": (
        ROLE.replace("    s =", "    t = 1\n    s =") + "        t += 1\n",
        "type/assign",
    ),
    "changing type": (ROLE + "        a = 1\n        a = 1.5\n", "type/changes"),
    "condition as number": (ROLE + "        if W:\n            a = 1\n", "type/operand"),
    "float bound": (ROLE + "        for i in range(1.5):\n            a = i\n", "type/operand"),
    "run-time unroll": (ROLE + "        for i in unroll(block):\n            a = i\n", "type/not-constant"),
    "endless unrolling": (ROLE + "        for i in unroll(100000):\n            a = i\n", "type/unroll"),
    "unrolling by nothing": (ROLE + "        for i in unroll(0, 4, 0):\n            a = i\n", "type/unroll"),
    "local of a loop": (
        ROLE + "        for i in range(2):\n            a = i\n        b = a\n",
        "type/unknown-name",
    ),
    "nested role": (ROLE + '        with role("q", warps=1):\n            a = 1\n', "type/nested-role"),
    "a value for one thread only": (
        ROLE + "        i = 0\n        with one_thread():\n            i += 1\n        a = i\n",
        "type/elected-assign",
    ),
    "nested election": (
        ROLE + "        with one_thread():\n            with one_thread():\n                a = 1\n",
        "type/nested-election",
    ),
    "between roles": (
        ROLE + '        a = 1\n    t = block\n    with role("q", warps=1):\n        a = 1\n',
        "type/between-roles",
    ),
    "nested declaration": (ROLE + "        q = Shared[f32, 4]\n", "type/nested-declaration"),
    "duplicate name": (
        HEAD.replace("s = Shared", "x = Shared") + '    with role("r", warps=1):\n        a = 1\n',
        "type/duplicate-name",
    ),
    "too many threads": (
        HEAD + '    with role("r", warps=32):\n        a = 1\n    with role("q", warps=1):\n        a = 1\n',
        "res/threads",
    ),
    "misplaced warpgroup": (
        HEAD
        + '    with role("r", warps=1):\n        a = 1\n    with role("q", warpgroups=1):\n        a = 1\n',
        "type/warpgroup-alignment",
    ),
    "bad swizzle": (
        ROLE.replace("Shared[f32, 32]", "Shared[f32, 32](swizzle=48)") + "        a = 1\n",
        "type/swizzle",
    ),
    "division by zero": (ROLE.replace("grid(1)", "grid(N // 0)") + "        a = 1\n", "type/not-constant"),
    "negative grid": (ROLE.replace("grid(1)", "grid(0 - 1)") + "        a = 1\n", "type/extent"),
    "huge shift": (ROLE.replace("grid(1)", "grid(1 << 4000000000)") + "        a = 1\n", "type/not-constant"),
    "overflowing product": (
        ROLE.replace("grid(1)", "grid(N * 9000000000000000000)") + "        a = 1\n",
        "type/not-constant",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_refused_with_one_diagnostic(name: str, registry: Registry) -> None:
    text, code = WRONG[name]
    assert [d.code for d in refused(text, registry, {"N": 32})] == [code]


@pytest.mark.parametrize(
    ("dims", "code"),
    [
        ({}, "contract/missing-dim"),
        ({"N": 0}, "contract/dim-range"),
        ({"N": 2**50}, "contract/dim-range"),
        ({"N": 1, "Q": 2}, "contract/unknown-dim"),
    ],
)
def test_dims_are_checked(dims: dict[str, int], code: str, registry: Registry) -> None:
    assert [d.code for d in refused(ROLE + "        a = 1\n", registry, dims)] == [code]


def test_an_unknown_architecture_is_named(registry: Registry) -> None:
    text = ROLE.replace("sm_80", "sm_75") + "        a = 1\n"
    assert [d.code for d in refused(text, registry, {"N": 32})] == ["arch/unknown"]
    text = ROLE.replace("sm_80", "sm_90a") + "        a = 1\n"
    assert [d.code for d in refused(text, registry, {"N": 32}, "sm_80")] == ["arch/not-claimed"]
