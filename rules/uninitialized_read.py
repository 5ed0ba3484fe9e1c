"""Memory is read that nothing wrote

Finds
    An instruction reads bytes of shared memory, or of an output, before anything wrote them.

Why
    Shared memory starts with what the last CTA left; the result depends on it, often as a rare NaN.

Mend
    Write every byte that is read, or narrow the window to what was written; mask the tail with the
    identity.

Silent when
    The bytes were written by an access that is not ordered before the read: that is a race and reported as
    one.

Source
    compute-sanitizer initcheck; public reports of NaN from padding.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding
from cake.machine.facts import UninitializedRead as Unwritten

MENDED = """
@kernel(arch="sm_80")
def total(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 4]
    with role("row", warps=4):
        v = load(x[:], vector=1, fill=0.0)
        store(s[warp], warp_sum(v))
        cta_sync()
        store(y[:], v * reduce_sum(load(s[:])), vector=1)
"""


class UninitializedRead(Rule):
    family = "mem"
    message = "`{reader}` reads bytes of {buffer} that nothing wrote"
    help = "write {buffer} before this instruction, or read only what was written"
    cases = (
        Bad(
            "a slot nobody fills",
            """
@kernel(arch="sm_80")
def total(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 8]
    with role("row", warps=4):
        v = load(x[:], vector=1, fill=0.0)
        store(s[warp], warp_sum(v))
        cta_sync()
        store(y[:], v * reduce_sum(load(s[:])), vector=1)  #!
""",
            fixed=MENDED,
            dims={"N": 128},
        ),
        Good("all slots are filled", MENDED, dims={"N": 128}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, Unwritten)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in facts.of(Unwritten):
            access = found.access
            yield self.report(
                access.span,
                "read here",
                reader=access.primitive,
                buffer=access.buffer.name,
            )
