"""Random kernels for property tests: syntactically rich, semantically free."""

from __future__ import annotations

from hypothesis import strategies as st

from cake.ir import nodes as n

NAMES = st.sampled_from(["a", "b", "j", "tile", "row", "acc", "STAGES", "M", "N", "block", "warp"])
BINARY = st.sampled_from(["+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>"])
COMPARE = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=0x17F), max_size=12).filter(str.isprintable)
INTS = st.integers(-(2**63) + 1, 2**63 - 1)
FLOATS = st.floats(allow_nan=False)


def scalars(inner: st.SearchStrategy[n.Expr]) -> st.SearchStrategy[n.Expr]:
    """Expressions built of `inner`. A minus before a literal is the literal's own sign, so none is built."""
    negatable = inner.filter(lambda e: not isinstance(e, n.Int | n.Float))
    ranges = st.one_of(st.just(n.Range(None, None)), st.builds(n.Range, inner, inner))
    return st.one_of(
        st.builds(n.Unary, st.just("-"), negatable),
        st.builds(n.Unary, st.just("not"), inner),
        st.builds(n.Binary, BINARY, inner, inner),
        st.builds(n.Compare, COMPARE, inner, inner),
        st.builds(n.Logic, st.sampled_from(["and", "or"]), inner, inner),
        st.builds(n.Select, inner, inner, inner),
        st.builds(n.Index, NAMES, st.lists(st.one_of(inner, ranges), min_size=1, max_size=3).map(tuple)),
        calls(inner),
    )


def calls(inner: st.SearchStrategy[n.Expr]) -> st.SearchStrategy[n.Call]:
    keyword = st.tuples(st.sampled_from(["vector", "fill", "layout"]), inner)
    keywords = st.lists(keyword, max_size=2, unique_by=lambda pair: pair[0]).map(tuple)
    name = st.sampled_from(["load", "wgmma", "min", "ceil_div"])
    return st.builds(n.Call, name, st.lists(inner, max_size=3).map(tuple), keywords)


LEAVES = st.one_of(
    st.builds(n.Int, INTS), st.builds(n.Float, FLOATS), st.builds(n.Text, WORDS), st.builds(n.Name, NAMES)
)
EXPRESSIONS = st.recursive(LEAVES, scalars, max_leaves=12)

SIMPLE = st.one_of(
    st.builds(n.Assign, st.lists(NAMES, min_size=1, max_size=2).map(tuple), EXPRESSIONS),
    st.builds(n.Do, calls(EXPRESSIONS)),
)


def blocks(inner: st.SearchStrategy[n.Stmt]) -> st.SearchStrategy[n.Stmt]:
    body = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(n.For, NAMES, EXPRESSIONS, EXPRESSIONS, EXPRESSIONS, body, st.booleans()),
        st.builds(n.If, EXPRESSIONS, body, st.one_of(st.just(()), body)),
        st.builds(n.OneThread, st.sampled_from(["role", "warpgroup", "warp"]), body),
        st.builds(n.Task, WORDS, body),
    )


STATEMENTS = st.recursive(SIMPLE, blocks, max_leaves=8)
BODIES = st.lists(STATEMENTS, max_size=4).map(tuple)
TOP = st.one_of(
    st.builds(n.Require, st.lists(EXPRESSIONS, max_size=3).map(tuple)),
    st.builds(n.Grid, EXPRESSIONS),
    st.builds(n.Cluster, EXPRESSIONS),
    st.builds(
        n.Shared, NAMES, st.just("bf16"), st.lists(EXPRESSIONS, min_size=1, max_size=3).map(tuple), st.none()
    ),
    st.builds(
        n.Shared,
        NAMES,
        st.just("f32"),
        st.just((n.Int(4),)),
        st.one_of(st.none(), EXPRESSIONS),
        st.builds(n.Name, NAMES),
        st.one_of(st.none(), EXPRESSIONS),
    ),
    st.builds(
        n.TensorMemory,
        NAMES,
        st.just("f32"),
        st.lists(EXPRESSIONS, min_size=1, max_size=3).map(tuple),
        EXPRESSIONS,
    ),
    st.builds(n.MBarrier, NAMES, st.one_of(st.none(), EXPRESSIONS), EXPRESSIONS),
    st.builds(n.Role, WORDS, EXPRESSIONS, st.booleans(), BODIES),
    STATEMENTS,
)
AXES = st.lists(
    st.one_of(st.builds(n.Name, st.sampled_from("MNK")), st.builds(n.Int, st.integers(1, 99))),
    min_size=1,
    max_size=3,
)
PARAMS = st.lists(
    st.builds(
        n.Param,
        st.sampled_from(["x", "y", "z"]),
        st.sampled_from(["bf16", "i32"]),
        AXES.map(tuple),
        st.booleans(),
    ),
    max_size=3,
    unique_by=lambda p: p.name,
)
CONSTANTS = st.lists(
    st.one_of(
        st.builds(n.Constant, st.sampled_from(["BM", "BN"]), st.integers(0, 512)),
        st.builds(
            lambda c: n.Constant("BK", c[0], tuple(c)), st.lists(st.integers(1, 256), min_size=1, max_size=4)
        ),
    ),
    max_size=3,
    unique_by=lambda c: c.name,
)
KERNELS = st.builds(
    lambda params, constants, body, doc: n.Kernel(
        "k", "sm_90a", tuple(params), tuple(constants), body, doc=doc
    ),
    PARAMS,
    CONSTANTS,
    st.lists(TOP, max_size=6).map(tuple),
    WORDS,
)
