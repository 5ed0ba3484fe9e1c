"""Text <-> IR: round trip, spans, and what hostile text gets."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cake.diagnostics import KernelErrors, render
from cake.ir import content_hash, parse, print_kernel
from cake.ir import nodes as n
from tests.ir.strategies import KERNELS

GOLDEN = sorted((Path(__file__).parents[2] / "plugins" / "kernels").glob("*.cake"))


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(KERNELS)
def test_printing_and_parsing_gives_the_same_kernel(kernel: n.Kernel) -> None:
    text = print_kernel(kernel)
    again = parse(text)
    assert again == kernel
    assert print_kernel(again) == text
    assert content_hash(again) == content_hash(kernel)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_golden_kernels_are_written_canonically(path: Path) -> None:
    text = path.read_text()
    assert print_kernel(parse(text)) == text


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_every_span_holds_its_own_text(path: Path) -> None:
    kernel = parse(path.read_text(), str(path))
    lines = path.read_text().split("\n")
    names = 0
    for stmt in n.walk(kernel.body):
        for expr in (e for x in n.expressions(stmt) for e in n.walk_expr(x)):
            if isinstance(expr, n.Name):
                span = expr.span
                assert lines[span.line - 1][span.column : span.end_column] == expr.id
                names += 1
    assert names > 10


def test_spans_count_characters_not_bytes() -> None:
    text = '@kernel(arch="sm_80")\ndef k(x: Global[bf16, N]):\n    with task("größe"): unknown.thing\n'
    with pytest.raises(KernelErrors) as refused:
        parse(text)
    (diagnostic,) = refused.value.diagnostics
    span = diagnostic.primary.span
    assert text.split("\n")[2][span.column : span.end_column] == "unknown.thing"


def test_a_docstring_is_kept_but_does_not_name_the_kernel() -> None:
    kernel = parse(GOLDEN[0].read_text())
    assert kernel.doc
    other = dataclasses.replace(kernel, doc="other words")
    assert content_hash(other) == content_hash(kernel)
    assert parse(print_kernel(other)).doc == "other words"


HEAD = '@kernel(arch="sm_80")\ndef k(x: Global[bf16, N]):\n'
HOSTILE = {
    "empty": ("", "syntax/outside"),
    "nul": ("\0", "syntax/python"),
    "ten megabytes": ("a = 1\n" * 1_700_000, "syntax/too-long"),
    "deep brackets": (HEAD + "    y = " + "(" * 5000 + ")" * 5000, "syntax/too-deep"),
    "unclosed brackets": ("(" * 200_000, "syntax/too-deep"),
    "a mile of minus": (HEAD + "    y = " + "-" * 100_000 + "1", "syntax/too-deep"),
    "a mile of not": (HEAD + "    y = " + "not " * 50_000 + "1", "syntax/too-deep"),
    "deep sums": (HEAD + "    y = " + "1 + " * 30_000 + "1", "syntax/too-deep"),
    "deep powers": (HEAD + "    y = " + "2 ** " * 9_000 + "2", "syntax/too-deep"),
    "deep attributes": (HEAD + "    y = x" + ".a" * 50_000, "syntax/too-deep"),
    "deep ternaries": (HEAD + "    y = " + "1 if a else " * 9_000 + "1", "syntax/too-deep"),
    "deep blocks": (
        HEAD + "".join("  " * (i + 1) + "if a:\n" for i in range(90)) + "  " * 91 + "pass",
        "syntax/too-deep",
    ),
    "deep elifs": (
        HEAD + "    if a:\n        pass\n" + "    elif a:\n        pass\n" * 3000,
        "syntax/too-deep",
    ),
    "huge integer": (HEAD + "    y = " + "9" * 4000, "syntax/literal"),
    "huger integer": (HEAD + "    y = " + "9" * 5000, "syntax/python"),
    "hexadecimal": (HEAD + "    y = 0x" + "f" * 200_000, "syntax/literal"),
    "infinite float": (HEAD + "    y = 1e999", "syntax/literal"),
    "complex": (HEAD + "    y = 1j", "syntax/literal"),
    "bytes": (HEAD + "    y = b'x'", "syntax/literal"),
    "import": (HEAD + "    import os", "syntax/statement"),
    "lambda": (HEAD + "    y = (lambda: 1)()", "syntax/expression"),
    "comprehension": (HEAD + "    y = [i for i in x]", "syntax/expression"),
    "walrus": (HEAD + "    y = (z := 1)", "syntax/expression"),
    "dunder": (HEAD + "    y = x.__class__", "syntax/expression"),
    "f-string": (HEAD + "    y = f'{x}'", "syntax/expression"),
    "star": (HEAD + "    load(*x)", "syntax/expression"),
    "double star": (HEAD + "    load(**x)", "syntax/expression"),
    "nested def": (HEAD + "    def f(): pass", "syntax/statement"),
    "while": (HEAD + "    while 1: pass", "syntax/statement"),
    "code beside": ("import os\n" + HEAD + "    pass", "syntax/outside"),
    "two kernels": (HEAD + "    pass\n" + HEAD + "    pass", "syntax/outside"),
    "memory write": (HEAD + "    x[0] = 1", "syntax/statement"),
    "python slice": (HEAD + "    load(x[0:5])", "syntax/window"),
    "dtype": ("@kernel(arch='sm_80')\ndef k(x: Global[f64, N]):\n    pass", "syntax/dtype"),
    "default": ("@kernel(arch='sm_80')\ndef k(x: Global[f32, N], *, A):\n    pass", "syntax/header"),
    "decorator": ("@evil\n@kernel(arch='sm_80')\ndef k(x: Global[f32, N]):\n    pass", "syntax/header"),
    "many statements": (HEAD + "    a = 1\n" * 20_000, "syntax/too-long"),
    "bare surrogate": (HEAD + "    y = '\ud800'", "syntax/python"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_gets_a_diagnostic(name: str) -> None:
    text, code = HOSTILE[name]
    with pytest.raises(KernelErrors) as refused:
        parse(text, "hostile.cake")
    assert refused.value.diagnostics[0].code == code
    assert len(render(refused.value.diagnostics, refused.value.source)) < 5000


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300) | st.text("()[]:=,+-* \n\"'@abk0.", max_size=300))
def test_any_text_is_a_kernel_or_a_diagnostic(text: str) -> None:
    for candidate in (text, HEAD + "    " + text):
        try:
            parse(candidate)
        except KernelErrors as refused:
            rendered = render(refused.diagnostics, refused.source)
        else:
            rendered = "accepted"
        assert rendered
