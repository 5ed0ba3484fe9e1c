"""A window starts where its instruction cannot

Finds
    The first byte of a window is not a multiple of what the instruction needs: the vector width, 16 bytes
    for cp_async and ldmatrix, a whole swizzle pattern for TMA and wgmma.

Why
    The access faults, or reads through the wrong swizzle.

Mend
    Start the window at a multiple, or use narrower accesses.

Silent when
    The row stride is at fault: the type check names it.

Source
    PTX ISA, alignment rules of ld, cp.async, ldmatrix, tensor maps and matrix descriptors.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Misaligned

MENDED = """
@kernel(arch="sm_80")
def part(x: Global[bf16, N], y: GlobalOut[bf16, N]):
    require(N % 8 == 0)
    grid(1)
    with role("row", warps=1):
        for i in range(2):
            store(y[i * 8:+8], load(x[i * 8:+8], vector=4, fill=0.0), vector=4)
"""


class MisalignedWindow(Rule):
    family = "mem"
    message = "`{user}` starts at byte {offset} of {buffer}, which is not a multiple of {need}"
    help = "start the window at a multiple of {need} bytes"
    cases = (
        Bad(
            "vectors of four at odd pairs",
            """
@kernel(arch="sm_80")
def part(x: Global[bf16, N], y: GlobalOut[bf16, N]):
    require(N % 8 == 0)
    grid(1)
    with role("row", warps=1):
        for i in range(2):
            store(y[i * 8:+8], load(x[i * 2:+8], vector=4, fill=0.0), vector=4)  #!
""",
            fixed=MENDED,
            dims={"N": 16},
        ),
        Good("at multiples", MENDED, dims={"N": 16}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, Misaligned)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in facts.of(Misaligned):
            yield self.report(
                found.span,
                "starts here",
                user=found.primitive,
                offset=found.offset,
                buffer=found.buffer.name,
                need=found.bytes,
            )
