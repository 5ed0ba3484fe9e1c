"""Resize the output tile

Symptom:
    `l2_reuse_low` or `tensor_idle`: each CTA reads too much for what it computes. `tail_wave`: the last wave
    fills few SMs.
Change:
    One constant that sizes windows of global tensors takes another of its declared choices.
Mechanism:
    A tile of BM x BN reads (BM + BN) K elements for BM BN K products: twice the tile on both axes halves the
    traffic of L2. Smaller tiles make more CTAs, which fill the last wave better and leave room for others on
    the SM.
Boundary:
    Accumulators of the larger tile may not fit the registers, nor its stages shared memory; both are found
    before any GPU is used. Below 64 x 64 the tensor cores wait for shared memory whatever the order.
Verify:
    Bytes through L2 (`lts__t_bytes`) fall as predicted and the time with them; with smaller tiles, active SMs
    in the last wave rise.
"""

from __future__ import annotations

from collections.abc import Iterator

from cake.ir.nodes import Kernel
from cake.kinds.tactic import Move, Refuses, Report, Rewrites, Tactic
from cake_plugins.tactics._kernels import RING, ROLES, ROWS, edited
from cake_plugins.tactics._rewrite import apply_constant, constant_moves, tile_constants


class ResizeTile(Tactic):
    symptoms = frozenset({"l2_reuse_low", "tensor_idle", "tail_wave", "shared_port_bound"})
    cases = (
        Rewrites(
            "a taller tile",
            before=RING,
            after=edited(RING, ("BM: choice(32, 64)=32", "BM: choice(32, 64)=64")),
            key="BM=64",
            dims={"M": 72, "N": 36, "K": 72},
        ),
        Rewrites(
            "a wider tile, and two panels in the epilogue",
            before=ROLES,
            after=edited(ROLES, ("BN: choice(64, 128)=64", "BN: choice(64, 128)=128")),
            key="BN=128",
            dims={"M": 128, "N": 136, "K": 136},
        ),
        Refuses("no constant sizes a window of a tensor", before=ROWS, dims={"M": 2, "N": 64}),
    )

    def sites(self, kernel: Kernel, report: Report) -> Iterator[Move]:
        moves = constant_moves(
            kernel, tile_constants(kernel), report, "resize the tile", lambda c, value: True
        )
        grow = "tail_wave" not in report.symptoms
        yield from sorted(moves, key=lambda move: _grows(kernel, move) != grow)

    def apply(self, kernel: Kernel, move: Move) -> Kernel:
        return apply_constant(kernel, move)


def _grows(kernel: Kernel, move: Move) -> bool:
    name, value = move.parameters["name"], move.parameters["value"]
    return float(value) > kernel.constant(str(name)).default
