"""A window sticks out of its buffer

Finds
    A window of shared memory, or of a tensor in an instruction that does not clip, reaches beyond the
    buffer.

Why
    Shared memory behind a buffer belongs to another; global memory behind a tensor to anybody.

Mend
    Correct the start, or use an instruction that clips or fills at the edge.

Silent when
    TMA, cp_async and accumulator stores at the edge of a global tensor: they clip.

Source
    compute-sanitizer memcheck.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, OutOfBounds

MENDED = """
@kernel(arch="sm_80")
def shift(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 8]
    with role("row", warps=4):
        v = load(x[:], vector=1, fill=0.0)
        store(s[warp], warp_sum(v))
        store(s[warp + 4], warp_sum(v))
        cta_sync()
        store(y[:], v * reduce_sum(load(s[:])), vector=1)
"""


class WindowOutOfBounds(Rule):
    family = "mem"
    message = "the window of `{user}` at {start} of {size} sticks out of {buffer} {shape}"
    help = "keep start + size within the buffer"
    cases = (
        Bad(
            "one slot too far",
            """
@kernel(arch="sm_80")
def shift(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 8]
    with role("row", warps=4):
        v = load(x[:], vector=1, fill=0.0)
        store(s[warp], warp_sum(v))
        store(s[warp + 5], warp_sum(v))  #!
        cta_sync()
        store(y[:], v * reduce_sum(load(s[:])), vector=1)
""",
            fixed=MENDED,
            dims={"N": 128},
        ),
        Good("within", MENDED, dims={"N": 128}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, OutOfBounds)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in facts.of(OutOfBounds):
            yield self.report(
                found.span,
                "beyond the buffer",
                user=found.primitive,
                start=list(found.start),
                size=list(found.size),
                buffer=found.buffer.name,
                shape=list(found.buffer.shape),
            )
