"""Deepen the ring of stages

Symptom:
    `copy_latency_exposed`: those who compute wait for data although memory has time.
Change:
    The constant that counts a ring's stages takes a larger one of its declared choices.
Mechanism:
    With s stages, s - 1 copies are under way while one stage is used. The latency of a copy, about a
    microsecond, is hidden when (s - 1) stages take longer than that to use.
Boundary:
    Each stage costs shared memory, at once and on all SMs: past the latency it hides nothing, and fewer CTAs
    fit. Depths that one CTA's shared memory does not hold are not offered.
Verify:
    Time spent at the wait for a full stage falls to nothing; beyond that depth the time stays.
"""

from __future__ import annotations

from collections.abc import Iterator

from cake.ir.nodes import Kernel
from cake.kinds.tactic import Move, Refuses, Report, Rewrites, Tactic
from cake_plugins.tactics._kernels import RING, ROLES, ROWS, edited
from cake_plugins.tactics._rewrite import apply_constants, constant_moves, ring_constants


class DeepenRing(Tactic):
    symptoms = frozenset({"copy_latency_exposed", "tensor_idle"})
    cases = (
        Rewrites(
            "cp.async stages",
            before=RING,
            after=edited(RING, ("STAGES: choice(2, 3, 4)=2", "STAGES: choice(2, 3, 4)=3")),
            key="STAGES=3",
            dims={"M": 40, "N": 36, "K": 168},
        ),
        Rewrites(
            "stages between roles",
            before=ROLES,
            after=edited(ROLES, ("STAGES: choice(2, 3, 4)=2", "STAGES: choice(2, 3, 4)=4")),
            key="STAGES=4",
            dims={"M": 128, "N": 72, "K": 392},
        ),
        Refuses("no ring", before=ROWS, dims={"M": 2, "N": 64}),
        Refuses(
            "deep enough: no larger choice",
            before=edited(RING, ("STAGES: choice(2, 3, 4)=2", "STAGES: choice(2, 3, 4)=4")),
            dims={"M": 32, "N": 32, "K": 64},
        ),
    )

    def sites(self, kernel: Kernel, report: Report) -> Iterator[Move]:
        yield from constant_moves(
            kernel, ring_constants(kernel), report, "deepen the ring", lambda c, value: value > c.default
        )

    def apply(self, kernel: Kernel, move: Move) -> Kernel:
        return apply_constants(kernel, move)
