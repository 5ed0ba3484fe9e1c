"""Group tiles so that CTAs at work together share rows and columns

Symptom:
    `l2_reuse_low`: device memory delivers the same operands several times in one launch.
Change:
    Tiles are no longer walked column by column over the whole height (`tile % tiles_m`, `tile // tiles_m`)
    but in bands of GROUP rows of tiles, in every role alike.
Mechanism:
    132 CTAs that form a block of about 12 x 12 tiles read 24 panels of operands; those that form four whole
    columns of 32 tiles read 36. Panels that a wave does not read twice fit L2 longer.
Boundary:
    Where all operands fit L2 anyway, the order is nearly without effect. The last band may be lower than
    GROUP; the rewrite handles it.
Verify:
    Bytes read from device memory (`dram__bytes_read`) fall towards the size of the operands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cake.ir import nodes as n
from cake.ir.nodes import Kernel
from cake.ir.rewrite import Block, over_blocks, substituted
from cake.kinds.tactic import Move, Refuses, Report, Rewrites, Tactic
from cake_plugins.tactics._kernels import RING, ROLES, ROWS, edited
from cake_plugins.tactics._rewrite import taken

GROUPS = (4, 8, 16)
CONSTANT = "GROUP"
HELPERS = ("band", "inside", "height")

_RING_BEFORE = """\
        row = block % tiles_m * BM
        col = block // tiles_m * BN
"""
_RING_AFTER = """\
        band = block // (GROUP * tiles_n) * GROUP
        inside = block % (GROUP * tiles_n)
        height = min(tiles_m - band, GROUP)
        row = (band + inside % height) * BM
        col = inside // height * BN
"""
_LOADER = """\
                row = tile % tiles_m * BM
                col = tile // tiles_m * BN
"""
_LOADER_AFTER = """\
                band = tile // (GROUP * tiles_n) * GROUP
                inside = tile % (GROUP * tiles_n)
                height = min(tiles_m - band, GROUP)
                row = (band + inside % height) * BM
                col = inside // height * BN
"""
_MULTIPLIER = """\
            row = tile % tiles_m * BM + warpgroup * 64
            col = tile // tiles_m * BN
"""
_MULTIPLIER_AFTER = """\
            band = tile // (GROUP * tiles_n) * GROUP
            inside = tile % (GROUP * tiles_n)
            height = min(tiles_m - band, GROUP)
            row = (band + inside % height) * BM + warpgroup * 64
            col = inside // height * BN
"""


_CONSTANT = ", GROUP: choice(4, 8, 16)=4):"
_RING_GROUPED = edited(RING, ("=32):", f"=32{_CONSTANT}"), (_RING_BEFORE, _RING_AFTER))
_ROLES_GROUPED = edited(
    ROLES,
    ("SMS=4):", f"SMS=4{_CONSTANT}"),
    (_LOADER, _LOADER_AFTER),
    (_MULTIPLIER, _MULTIPLIER_AFTER),
)


@dataclass(frozen=True, slots=True)
class Order:
    """Tile number `tile` (a name) is walked with `fast` tiles along one axis, `slow` along the other."""

    tile: n.Name
    fast: n.Name
    slow: n.Name


class GroupTiles(Tactic):
    symptoms = frozenset({"l2_reuse_low", "memory_bound"})
    cases = (
        Rewrites(
            "one tile a CTA",
            before=RING,
            after=_RING_GROUPED,
            key="GROUP=4",
            dims={"M": 168, "N": 68, "K": 40},
        ),
        Rewrites(
            "every role of a persistent kernel",
            before=ROLES,
            after=_ROLES_GROUPED,
            key="GROUP=4",
            dims={"M": 328, "N": 136, "K": 72},
        ),
        Refuses("rows have no second axis to group by", before=ROWS, dims={"M": 4, "N": 64}),
        Refuses("grouped already", before=_RING_GROUPED, dims={"M": 168, "N": 68, "K": 40}),
    )

    def sites(self, kernel: Kernel, report: Report) -> Iterator[Move]:
        if taken(kernel) & {CONSTANT, *HELPERS} or _order(kernel) is None:
            return
        for group in GROUPS:
            yield Move(f"{CONSTANT}={group}", f"walk the tiles in bands of {group}", {"group": group})

    def apply(self, kernel: Kernel, move: Move) -> Kernel:
        group = move.parameters["group"]
        assert isinstance(group, int)
        constant = n.Constant(CONSTANT, group, GROUPS)
        body = over_blocks(kernel.body, lambda block: _grouped(kernel, block))
        return replace(kernel, constants=(*kernel.constants, constant), body=body)


def _order(kernel: Kernel) -> Order | None:
    """How the kernel walks its tiles, if every role walks them alike."""
    found: list[Order | None] = []
    over_blocks(kernel.body, lambda block: (found.append(_order_of(kernel, block)), block)[1])
    orders = [order for order in found if order is not None]
    return orders[0] if orders and len({(o.fast.id, o.slow.id) for o in orders}) == 1 else None


def _order_of(kernel: Kernel, block: Block) -> Order | None:
    """The order of `X % F` and `X // F` in the assignments of one block; `F * S` tiles in all."""
    fast: dict[str, set[str]] = {"%": set(), "//": set()}
    for stmt in block:
        if isinstance(stmt, n.Assign):
            for expr in n.walk_expr(stmt.value):
                match expr:
                    case n.Binary(op=("%" | "//") as op, left=n.Name(id=tile), right=n.Name(id=count)):
                        fast[op].add(f"{tile} {count}")
    for pair in sorted(fast["%"] & fast["//"]):
        tile, count = pair.split()
        slow = _partner(kernel, count)
        if slow:
            return Order(n.Name(tile), n.Name(count), n.Name(slow))
    return None


def _partner(kernel: Kernel, count: str) -> str:
    """The other factor of the number of tiles, as the grid states it; empty if there is none."""
    for stmt in kernel.body:
        if isinstance(stmt, n.Grid):
            for expr in n.walk_expr(stmt.blocks):
                match expr:
                    case n.Binary(op="*", left=n.Name(id=left), right=n.Name(id=right)):
                        if count in (left, right) and left != right:
                            return right if left == count else left
    return ""


def _grouped(kernel: Kernel, block: Block) -> Block:
    order = _order_of(kernel, block)
    if order is None:
        return block
    band, inside, height = (n.Name(name) for name in HELPERS)
    group, tile = n.Name(CONSTANT), order.tile
    a_band = n.Binary("*", group, order.slow)
    lines: Block = (
        n.Assign((band.id,), n.Binary("*", n.Binary("//", tile, a_band), group)),
        n.Assign((inside.id,), n.Binary("%", tile, a_band)),
        n.Assign((height.id,), n.Call("min", (n.Binary("-", order.fast, band), group))),
    )
    fast, slow = n.Binary("%", tile, order.fast), n.Binary("//", tile, order.fast)
    out: list[n.Stmt] = []
    for stmt in block:
        new = substituted(stmt, fast, n.Binary("+", band, n.Binary("%", inside, height)))
        new = substituted(new, slow, n.Binary("//", inside, height))
        if new != stmt and lines:
            out += lines
            lines = ()
        out.append(new)
    return tuple(out)
