"""Resize a role: more or fewer warps for the same tile

Symptom:
    `issue_bound` or `shared_port_bound`: many small warp tiles load the same operands again. `tensor_idle` or
    `copy_latency_exposed`: too few warps to overlap one's loads with another's arithmetic.
Change:
    A constant that the number of a role's warps depends on, and that sizes no tile of the CTA, takes another
    of its declared choices.
Mechanism:
    A warp tile of WM x WN reads WM + WN operands for WM WN products: larger warp tiles spare the port of
    shared memory, smaller ones give the schedulers more warps to choose from and each thread fewer registers.
Boundary:
    Warp tiles of 64 x 64 and more hold 128 accumulators a thread and spill with anything beside them; one
    row spread over many warps pays for each rendezvous.
Verify:
    `l1tex__data_pipe_lsu_wavefronts` falls with larger warp tiles; issue slots' use falls with fewer warps.
"""

from __future__ import annotations

from collections.abc import Iterator

from cake.ir.nodes import Kernel
from cake.kinds.tactic import Move, Refuses, Report, Rewrites, Tactic
from cake_plugins.tactics._kernels import RING, ROLES, ROWS, edited
from cake_plugins.tactics._rewrite import apply_constants, constant_moves, role_constants


class ResizeRole(Tactic):
    symptoms = frozenset({"issue_bound", "shared_port_bound", "occupancy_low", "copy_latency_exposed"})
    cases = (
        Rewrites(
            "larger warp tiles, fewer warps",
            before=RING,
            after=edited(RING, ("WM: choice(16, 32)=16", "WM: choice(16, 32)=32")),
            key="WM=32",
            dims={"M": 40, "N": 36, "K": 72},
        ),
        Rewrites(
            "a row over more warps",
            before=ROWS,
            after=edited(ROWS, ("WARPS: choice(1, 2, 4)=1", "WARPS: choice(1, 2, 4)=4")),
            key="WARPS=4",
            dims={"M": 2, "N": 200},
        ),
        Refuses(
            "the only constant that the role depends on is the tile",
            before=ROLES,
            dims={"M": 64, "N": 64, "K": 64},
        ),
    )

    def sites(self, kernel: Kernel, report: Report) -> Iterator[Move]:
        yield from constant_moves(
            kernel, role_constants(kernel), report, "resize the role", lambda c, value: True
        )

    def apply(self, kernel: Kernel, move: Move) -> Kernel:
        return apply_constants(kernel, move)
