"""Scalar arithmetic in C++ means what the machine computes; addresses are those of the layouts."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cake.codegen import compile_source, generate
from cake.codegen.expressions import Scalars, group, level, summands, total
from cake.codegen.ranges import ANY, Ranges
from cake.codegen.writer import RESERVED, Writer, c_name
from cake.ir import Instance, instantiate, parse
from cake.ir import nodes as n
from cake.ir.evaluate import EvaluationError, evaluate
from cake.ir.layouts import SWIZZLES, swizzle_offset
from cake.ir.types import BOOL, INT, Buffer, DType, Type
from cake.kinds.primitive import Window
from cake.plugins import Registry

VALUES = {"i": 7, "j": 12, "k": 3}
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def as_python(text: str) -> str:
    """C++ of non-negative operands as Python: both round the same way there."""
    text = re.sub(r"static_cast<long long>", "", text).replace("LL", "")
    text = text.replace(" / ", " // ").replace("&&", "and").replace("||", "or")
    return re.sub(r"!(?!=)", "not ", text)


def number_type(expr: n.Expr) -> Type:
    return BOOL if isinstance(expr, n.Compare | n.Logic) else INT


def choose(op: str) -> type[n.Expr]:
    return n.Binary if op in ("+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>") else n.Compare


LEAVES = st.one_of(
    st.integers(0, 40).map(n.Int),
    st.sampled_from(sorted(VALUES)).map(n.Name),
)
OPERATORS = st.sampled_from(["+", "-", "*", "//", "%", "&", "|", "^", ">>"])


def larger(inner: st.SearchStrategy[n.Expr]) -> st.SearchStrategy[n.Expr]:
    compare = st.builds(n.Compare, st.sampled_from(COMPARISONS), inner, inner)
    logic = st.builds(n.Logic, st.sampled_from(["and", "or"]), compare, compare)
    return st.one_of(
        st.builds(n.Binary, OPERATORS, inner, inner),
        st.builds(n.Select, st.one_of(compare, logic), inner, inner),
        st.builds(n.Call, st.sampled_from(["ceil_div", "min", "max"]), st.tuples(inner, inner)),
    )


INTEGERS = st.recursive(LEAVES, larger, max_leaves=12)


SMALL = """
@kernel(arch="sm_80")
def small(y: GlobalOut[f32, N]):
    grid(3)
    with role("all", warps=1):
        i = 7
"""


@pytest.fixture(scope="module")
def small(registry: Registry) -> Instance:
    return instantiate(parse(SMALL), {"N": 1}, primitives=registry.primitives)


@given(expr=INTEGERS)
def test_texts_have_the_values_of_their_expressions(expr: n.Expr, small: Instance) -> None:
    ranges = Ranges(small, None)
    ranges.known |= {name: (value, value) for name, value in VALUES.items()}
    text = Scalars(str, ranges, number_type).text(expr)
    try:
        value = evaluate(expr, VALUES)
    except EvaluationError:
        return
    # Python spells `c ? a : b` otherwise: texts with one are only parsed for their precedence.
    if "?" not in text:
        assert int(eval(as_python(text), {"min": min, "max": max}, dict(VALUES))) == int(value)
    low, high = ranges.of(expr)
    assert low <= value <= high


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("a", ["a"]),
        ("a + b * 2 + 3", ["a", "b * 2", "3"]),
        ("a - b + c", ["a - b", "c"]),
        ("f(a + b) + x[i + 1]", ["f(a + b)", "x[i + 1]"]),
        ("(a + b)", ["a", "b"]),
        ("c ? a : b + 1", ["c ? a : b + 1"]),
        ("0", []),
    ],
)
def test_sums_are_taken_apart_at_their_own_level(text: str, terms: list[str]) -> None:
    assert summands(text) == terms


def test_sums_keep_what_binds_more_loosely_in_parentheses() -> None:
    assert total(["a", "c ? a : b", "2", "3"]) == "a + (c ? a : b) + 5"
    assert total([]) == "0"
    assert group("a & b", level("a + b")) == "(a & b)"


WINDOWS = list(itertools.product(SWIZZLES, (DType.bf16, DType.f32), ("s", "1")))


@pytest.mark.parametrize(("swizzle", "dtype", "slot"), WINDOWS)
def test_shared_addresses_are_those_of_the_layout(
    swizzle: int, dtype: DType, slot: str, small: Instance
) -> None:
    columns = 64
    buffer = Buffer("at", "shared", dtype, (3, 32, columns), swizzle=swizzle, offset=2048)
    window = Window(buffer, (slot, "row + 8", "k * 16"), (1, 8, 16), (8, 16))
    writer = Writer(small)
    text = writer.shared_address(window, ["0", "i_ * 4 + lane % 4", "lane / 4 * 2"])
    functions = {f"cake_swizzle_{swizzle}": lambda offset: swizzle_offset(offset, swizzle)}
    for s, row, k, i, lane in itertools.product((0, 2), (0, 3), (0, 2), (0, 1), (0, 5, 31)):
        names = {"at": 0, "s": s, "row": row, "k": k, "i_": i, "lane": lane}
        place = 1 if slot == "1" else s
        element = (place * 32 + row + 8 + i * 4 + lane % 4) * columns + k * 16 + lane // 4 * 2
        wanted = swizzle_offset(element * dtype.bytes, swizzle)
        assert eval(as_python(text), functions, names) == wanted
    assert writer.placed == {"at": 2048}


def test_a_slot_of_a_ring_stays_outside_the_swizzle(small: Instance) -> None:
    buffer = Buffer("at", "shared", DType.bf16, (4, 128, 64), swizzle=128)
    writer = Writer(small)
    window = Window(buffer, ("s", "0", "0"), (1, 128, 64), (128, 64))
    assert writer.shared_address(window, ["0", "0", "0"]) == "at + s * 16384"
    assert (
        writer.shared_address(window, ["0", "r_", "8"]) == "at + s * 16384 + cake_swizzle_128(r_ * 128 + 16)"
    )


def bounds(small: Instance, reach: tuple[int, int], size: int = 16) -> str:
    writer = Writer(small)
    writer.origins["row"] = reach
    buffer = Buffer("a", "global", DType.f32, (100, 8))
    return writer.in_bounds(Window(buffer, ("row", "0"), (size, 8), (size, 8)), ["r_", "k_"])


def test_only_windows_that_may_stick_out_are_tested(small: Instance) -> None:
    assert bounds(small, (0, 84)) == "true"
    assert bounds(small, (0, 85)) == "row + r_ < 100"
    assert bounds(small, (-1, 84)) == "row + r_ >= 0"
    assert bounds(small, ANY) == "row + r_ >= 0 && row + r_ < 100"


def test_large_tensors_are_indexed_in_64_bits(small: Instance) -> None:
    writer = Writer(small)
    writer.origins |= {"row": (0, 2**20), "col": (0, 2**20)}
    few = Window(Buffer("a", "global", DType.f32, (2**10, 2**10)), ("0", "0"), (1, 4), (4,))
    many = Window(Buffer("b", "global", DType.f32, (2**20, 2**20)), ("row", "col"), (1, 4), (4,))
    assert writer.global_index(few, ["0", "i_"]) == "i_"
    assert writer.global_index(many, ["0", "i_"]) == "static_cast<long long>(row) * 1048576 + col + i_"
    assert writer.pointers == {"a", "b"}


HOSTILE = """
@kernel(arch="sm_80")
def hostile(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(65536)
    z = Shared[f32, 2]
    with role("row", warps=1):
        far = block * 65536
        near = far // 65536
        s, p = ring(near + 1, 3)
        s, p = ring(s + 1, 2)
        n = 4
        for j in range(n):
            n = n - 1
        for d in range(8, 0, -2):
            n = n + d
        it = 0
        for a in range(1000):
            for b in range(block, 70000, 3):
                it = it + 200
        cp_async_wait(0)
        store(z[it % 2], load(z[far // 65536 % 2]))
        store(y[s + p + n + 0 * it:+1], load(x[0:+1], vector=1, fill=0.0), vector=1)
"""


@pytest.fixture(scope="module")
def hostile(registry: Registry) -> str:
    instance = instantiate(parse(HOSTILE), {"N": 256}, primitives=registry.primitives)
    source = generate(instance).source
    return "\n".join(line.strip() for line in source.split("\n") if not line.startswith("#line"))


@pytest.mark.parametrize(
    "line",
    [
        "long long far = static_cast<long long>(cake_block) * 65536;",
        "int near = far / 65536;",
        "int s = (near + 1) % 3;",
        "int p = (near + 1) / 3 & 1;",
        "const int cake_parity_1 = (s + 1) / 2 & 1;",
        "s = (s + 1) % 2;",
        "p = cake_parity_1;",
        "const int cake_bound_2 = n;",
        "for (int j = 0; j < cake_bound_2; ++j) {",
        "for (int d = 8; d > 0; d += -2) {",
        "long long it = 0;",
    ],
)
def test_c_computes_what_the_text_says(line: str, hostile: str) -> None:
    assert line in hostile.split("\n")


def test_it_compiles_without_a_warning(hostile: str) -> None:
    assert compile_source(hostile, "sm_80").notes == ()


@given(
    st.sets(
        st.sampled_from(
            ["int", "int_x", "int_x_x", "a", "a_x", "a_", "a__x", "cake_a", "cake_a_x", "_x", "__a"]
        )
    )
)
def test_different_names_stay_different(names: set[str]) -> None:
    renamed = {c_name(name) for name in names}
    assert len(renamed) == len(names)
    assert not renamed & RESERVED
    assert not any(name.startswith("cake_") and not name.endswith("_x") for name in renamed)
