"""Widen the accesses of a row

Symptom:
    `narrow_accesses`: a lane moves fewer than 8 bytes at once. `issue_bound` in a kernel that streams.
Change:
    The constant that is the `vector` of loads and stores takes a larger one of its declared choices.
Mechanism:
    A warp's access of 16 bytes a lane moves 512 bytes for one instruction and one pass of its address through
    the pipeline; more bytes are in flight for the same number of instructions.
Boundary:
    The row must be a multiple of the vector (the contract says so) and long enough for all lanes: a row of
    256 elements over 8 warps leaves most lanes idle at 8 elements each.
Verify:
    Instructions issued for memory fall by the same factor; bytes stay, throughput of device memory rises.
"""

from __future__ import annotations

from collections.abc import Iterator

from cake.ir.nodes import Kernel
from cake.kinds.tactic import Move, Refuses, Report, Rewrites, Tactic
from cake_plugins.tactics._kernels import ROLES, ROWS, edited
from cake_plugins.tactics._rewrite import apply_constants, constant_moves, vector_constants


class WidenAccesses(Tactic):
    symptoms = frozenset({"narrow_accesses", "issue_bound", "copy_latency_exposed"})
    cases = (
        Rewrites(
            "from 2 to 16 bytes a lane",
            before=ROWS,
            after=edited(ROWS, ("VEC: choice(1, 2, 4, 8)=1", "VEC: choice(1, 2, 4, 8)=8")),
            key="VEC=8",
            dims={"M": 2, "N": 320},
        ),
        Refuses("the contract admits no wider one", before=ROWS, key="VEC=8", dims={"M": 2, "N": 68}),
        Refuses("no vectors", before=ROLES, dims={"M": 64, "N": 64, "K": 64}),
    )

    def sites(self, kernel: Kernel, report: Report) -> Iterator[Move]:
        yield from constant_moves(
            kernel,
            vector_constants(kernel),
            report,
            "widen the accesses",
            lambda c, value: value > c.default,
        )

    def apply(self, kernel: Kernel, move: Move) -> Kernel:
        return apply_constants(kernel, move)
