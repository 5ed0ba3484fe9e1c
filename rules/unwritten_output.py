"""An output is written in part, or not at all while another is

Finds
    After all CTAs of a small grid have ended, elements of a `GlobalOut` tensor hold nothing.

Why
    Whoever reads the tensor finds what the memory held before: a tail that no tile covers, a store by one
    warp of several, a branch that skips the last row.

Mend
    Let the tiles cover the whole extent (`ceil_div`), each warp store its part, and every path store.

Silent when
    No output is written at all (such a kernel computes nothing to be judged here); the grid is too large to
    be executed as a whole.

Source
    The contract of cake: a kernel writes all of its outputs. Its evaluator poisons them beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Unwritten

MENDED = """
@kernel(arch="sm_80")
def double(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    require(N == 32)
    grid(ceil_div(M, 2))
    with role("even", warps=1):
        store(y[block * 2, :], load(x[block * 2, :], vector=1, fill=0.0) * 2.0, vector=1)
    with role("odd", warps=1):
        if block * 2 + 1 < M:
            store(y[block * 2 + 1, :], load(x[block * 2 + 1, :], vector=1, fill=0.0) * 2.0, vector=1)
"""


class UnwrittenOutput(Rule):
    family = "mem"
    message = "{missing} elements of {output} are never written, the first at {first}"
    help = "cover the whole extent: round the number of tiles up, and let every warp and path store its part"
    cases = (
        Bad(
            "the last odd row",
            """
@kernel(arch="sm_80")
def double(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    require(N == 64)
    grid(M // 2)
    with role("row", warps=2):
        for i in range(2):
            v = load(x[block * 2 + i, :], vector=1, fill=0.0)
            store(y[block * 2 + i, :], v * 2.0, vector=1)  #!
""",
            fixed="""
@kernel(arch="sm_80")
def double(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    require(N == 64)
    grid(ceil_div(M, 2))
    with role("row", warps=2):
        for i in range(min(2, M - block * 2)):
            v = load(x[block * 2 + i, :], vector=1, fill=0.0)
            store(y[block * 2 + i, :], v * 2.0, vector=1)
""",
            dims={"M": 5, "N": 64},
        ),
        Bad(
            "one of two outputs",
            """
@kernel(arch="sm_80")
def double(x: Global[f32, N], y: GlobalOut[f32, N], z: GlobalOut[f32, N]):  #!
    grid(1)
    with role("row", warps=1):
        store(y[:], load(x[:], vector=1, fill=0.0) * 2.0, vector=1)
""",
            fixed="""
@kernel(arch="sm_80")
def double(x: Global[f32, N], y: GlobalOut[f32, N], z: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        store(y[:], v * 2.0, vector=1)
        store(z[:], v * 3.0, vector=1)
""",
            dims={"N": 32},
        ),
        Good("each row by its role", MENDED, dims={"M": 5, "N": 32}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, Unwritten)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in facts.of(Unwritten):
            name = found.buffer.name
            declared = next(p.span for p in facts.instance.kernel.params if p.name == name)
            place, *others = found.writes or (declared,)
            yield self.report(
                place,
                "writes some of them" if found.writes else "never written",
                secondary=tuple((span, "others") for span in others),
                missing=found.missing,
                output=name,
                first=list(found.first),
            )
