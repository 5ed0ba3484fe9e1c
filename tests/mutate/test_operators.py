"""Operators: what they make of a kernel, always the same, and a harmful mutant of each is reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cake.ir import instantiate, parse, print_kernel
from cake.ir import nodes as n
from cake.ir.rewrite import exchanged, spliced, spots
from cake.ir.types import Type
from cake.kinds.primitive import Op, Primitive, Site, parameter
from cake.mutate import OPERATORS, PRESERVING, Mutant, derive, subject
from cake.mutate.survey import Subject, survey
from cake.plugins import Registry, load
from cake.verify import check
from tests.ir.strategies import KERNELS
from tests.machine import toy

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = sorted(path.stem for path in (ROOT / "plugins" / "kernels").glob("*.cake"))
TEXTS = {name: (ROOT / "plugins" / "kernels" / f"{name}.cake").read_text() for name in GOLDEN}
TEXTS |= {path.stem: path.read_text() for path in Path(__file__).parent.glob("*.cake")}


@cache
def plugins() -> Registry:
    return load(ROOT)


@cache
def parent(name: str) -> Subject:
    return subject(parse(TEXTS[name], name), plugins())


@cache
def mutants(name: str) -> list[Mutant]:
    return derive(parent(name), [*OPERATORS, *PRESERVING])


# --- every mutant -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
def test_every_mutant_is_another_kernel_in_canonical_text(name: str) -> None:
    original = print_kernel(parent(name).kernel)
    made = mutants(name)
    assert len({m.text for m in made} | {original}) == len(made) + 1
    for mutant in made:
        assert print_kernel(mutant.kernel) == mutant.text
        assert parse(mutant.text) == mutant.kernel


@pytest.mark.parametrize("name", TEXTS)
def test_a_mutant_shows_the_lines_that_differ(name: str) -> None:
    original = print_kernel(parent(name).kernel).split("\n")
    for mutant in mutants(name):
        lines = mutant.text.split("\n")
        first = next(i for i, (a, b) in enumerate(zip(original, lines, strict=False)) if a != b)
        assert mutant.span.line <= first + 1
        assert mutant.removed or mutant.added
        for line in mutant.added:
            assert line in [text.strip() for text in lines]


@pytest.mark.parametrize("name", ["gemm_sm80", "softmax"])
def test_operators_are_deterministic(name: str) -> None:
    again = derive(subject(parse(TEXTS[name], name), plugins()), [*OPERATORS, *PRESERVING])
    assert [(m.operator, m.description, m.text) for m in again] == [
        (m.operator, m.description, m.text) for m in mutants(name)
    ]


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_a_sample_is_drawn_by_its_seed_from_every_operator(seed: int, size: int) -> None:
    whole = [m for m in mutants("softmax") if m.operator in {o.name for o in OPERATORS}]
    part = derive(parent("softmax"), OPERATORS, size, seed)
    assert part == derive(parent("softmax"), OPERATORS, size, seed)
    assert [m for m in whole if m in part] == part
    assert len(part) == min(size, len(whole))
    operators = {m.operator for m in whole}
    assert len({m.operator for m in part}) == min(size, len(operators))


def test_names_are_unique_and_none_is_without_use() -> None:
    names = [operator.name for operator in (*OPERATORS, *PRESERVING)]
    assert len(set(names)) == len(names)
    assert all(operator.does for operator in (*OPERATORS, *PRESERVING))


# --- a harmful mutant of each operator --------------------------------------------------------------------


@dataclass(frozen=True)
class Harm:
    """Of the mutants of the kernel that begin with these words one is refused; tests/verify has the codes."""

    operator: str
    kernel: str
    description: str


HARM = [
    Harm("no-drain", "gemm_sm90a", "mma ends without"),
    Harm("drop-sync", "gemm_sm90a", "wgmma_commit is gone"),
    Harm("drop-sync", "gemm_sm90a", "fence_async is gone"),
    Harm("double-sync", "gemm_sm90a", "arrive twice"),
    Harm("sync-earlier", "gemm_sm90a", "fence_mbarrier_init before"),
    Harm("sync-later", "softmax", "cta_sync after"),
    Harm("early-release", "gemm_sm90a", "arrive as early"),
    Harm("late-wait", "gemm_sm90a", "wgmma_wait last"),
    Harm("sync-out", "gemm_sm80", "cp_async_wait before its for"),
    Harm("sync-into", "gemm_sm90a", "setmaxnreg_dec inside"),
    Harm("shallow-wait", "gemm_sm90a", "wgmma_wait leaves"),
    Harm("weaker-sync", "softmax", "cp_async_commit in place of cta_sync"),
    Harm("arrivals", "gemm_sm90a", "arrivals of free +1"),
    Harm("participants", "gemm_sm90a", "warps of named_sync -1"),
    Harm("parity", "gemm_sm90a", "the other parity"),
    Harm("expected-bytes", "gemm_sm90a", "expect_bytes without at[s]"),
    Harm("registers", "gemm_sm90a", "registers of setmaxnreg_inc +8"),
    Harm("stage", "gemm_sm80", "the stage of at[s, "),
    Harm("ring-capacity", "gemm_sm90a", "stages of full -1"),
    Harm("trips", "gemm_sm90a", "the end of the loop over tile +1"),
    Harm("counter", "gemm_sm90a", "it is not advanced"),
    Harm("guard", "guarded", "<= in row < M"),
    Harm("size", "softmax", "the size of row +1"),
    Harm("swap-buffer", "gemm_sm80", "bt in place of at"),
    Harm("swizzle", "softmax", "swizzle of peaks 64"),
    Harm("overlay", "gemm_sm80", "bt over at"),
    Harm("fill", "rmsnorm", "fill 1.0"),
    Harm("width", "rmsnorm", "vector 16"),
    Harm("contract", "gemm_sm90a", "without the contract K % 8"),
    Harm("offset", "softmax", "warp + 1 in peaks[warp]"),
    Harm("peer", "paired", "told of the next CTA"),
    Harm("election", "gemm_sm90a", "every thread"),
    Harm("drop-access", "gemm_sm90a", "tma_load is gone"),
]


@pytest.mark.parametrize("harm", HARM, ids=lambda h: f"{h.operator}: {h.description}")
def test_a_known_harm_is_reported(harm: Harm) -> None:
    found = [
        m
        for m in mutants(harm.kernel)
        if m.operator == harm.operator and m.description.startswith(harm.description)
    ]
    assert found, [m.description for m in mutants(harm.kernel) if m.operator == harm.operator]
    assert any(not check(m.kernel, plugins()).ok for m in found)


def test_each_operator_has_a_known_harm() -> None:
    """Two have theirs elsewhere: one shows by values alone, one by a toy below."""
    assert {h.operator for h in HARM} == {o.name for o in OPERATORS} - {"stale-fragment", "accumulate"}


# --- instructions that nobody named -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tide:
    """An effect that the machine does not have."""

    pending: int


class Ebb(toy.Toy):
    names = ("ebb",)
    parameters = (parameter("pending", "int"),)

    def effects(self, op: Op) -> Sequence[Tide]:
        return (Tide(op.args["pending"]),)


class Blend(toy.Toy):
    names = ("blend",)
    parameters = (parameter("acc", "fragment"), parameter("keep", "int"))
    in_place = "acc"

    def signature(self, site: Site) -> Type | None:
        return site.fragment("acc")

    def effects(self, op: Op) -> Sequence[Tide]:
        return ()


def test_an_unknown_effect_synchronizes_and_is_mutated() -> None:
    text = """
@kernel(arch="sm_80")
def odd(x: Global[f32, N]):
    grid(1)
    with role("r", warps=1):
        acc = zeros(f32, 16, 8, layout="mma")
        for i in range(4):
            acc = blend(acc, i)
            ebb(1)
"""
    kernel = parse(print_kernel(parse(text)))
    primitives: dict[str, Primitive] = {**plugins().primitives, "ebb": Ebb(), "blend": Blend()}
    instance = instantiate(kernel, {"N": 32}, primitives=primitives)
    odd = Subject(kernel, instance, survey(instance), primitives)
    made = {(m.operator, m.description) for m in derive(odd, OPERATORS)}
    assert {
        ("drop-sync", "ebb is gone"),
        ("double-sync", "ebb twice"),
        ("sync-earlier", "ebb before blend"),
        ("shallow-wait", "ebb leaves one more in flight"),
        ("accumulate", "keep inverted"),
        ("stale-fragment", "zeros in each pass"),
    } <= made


# --- rewriting --------------------------------------------------------------------------------------------


@given(KERNELS, st.randoms())
def test_splicing_changes_one_block_and_shares_the_rest(kernel: n.Kernel, random) -> None:
    fresh = parse(print_kernel(kernel))
    assert spliced(fresh.body, {}) == fresh.body
    places = list(spots(fresh.body))
    if not places:
        return
    spot = random.choice(places)
    mark = n.Do(n.Call("mark", ()))
    replaced = spliced(fresh.body, {id(spot.stmt): (mark,)})
    inside = sum(1 for _ in n.walk((spot.stmt,)))
    assert sum(1 for _ in n.walk(replaced)) == len(places) - inside + 1
    assert mark in n.walk(replaced)
    assert exchanged(fresh.body, spot.stmt, mark) == replaced
