"""Resize the output tile

Symptom:
    `l2_reuse_low` or `tensor_idle`: each CTA reads too much for what it computes. `tail_wave`: the last wave
    fills few SMs.
Change:
    One constant that sizes windows of global tensors takes another of its declared choices. Where the larger
    tile's stages do not fit shared memory, the ring gets as many as fit.
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
from cake_plugins.tactics._rewrite import apply_constants, constant_moves, tile_constants

_LARGE = edited(
    RING,
    (
        "BM: choice(32, 64)=32, BN: choice(32, 64)=32, BK: choice(32, 64)=32",
        "BM=128, BN: choice(128, 256)=128, BK=64",
    ),
    ("STAGES: choice(2, 3, 4)=2", "STAGES: choice(2, 3, 4)=4"),
    ("WM: choice(16, 32)=16, WN: choice(16, 32)=32", "WM=64, WN=64"),
    ("swizzle=64", "swizzle=128"),
)


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
        Rewrites(
            "a wider tile, and the stages that fit beside it",
            before=_LARGE,
            after=edited(_LARGE, ("BN: choice(128, 256)=128", "BN: choice(128, 256)=256"), ("=4,", "=3,")),
            key="BN=256,STAGES=3",
            dims={"M": 128, "N": 264, "K": 72},
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
        return apply_constants(kernel, move)


def _grows(kernel: Kernel, move: Move) -> bool:
    name, value = next(iter(move.parameters.items()))
    return float(value) > kernel.constant(name).default
