"""Make the kernel persistent: a fixed number of CTAs walks over the tiles

Symptom:
    `tail_wave`: the last wave fills few SMs, or the start of each CTA costs as much as its work.
Change:
    `grid(tiles)` becomes `grid(min(tiles, CTAS))`; the role's body runs for `tile` from `block` in steps of
    `blocks`, with a rendezvous at the end of each pass where shared memory is used again.
Mechanism:
    A CTA starts once and not for every tile; tiles are dealt out evenly, and later rewrites may overlap the
    end of one tile with the beginning of the next.
Boundary:
    One role, no mbarriers (their phases would have to run on), and what a warp keeps must be made anew in
    each pass. By itself it hides no latency: without overlap, several CTAs on an SM often do better.
Verify:
    Blocks launched equal CTAS; achieved occupancy is even over the SMs until the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cake.ir import nodes as n
from cake.ir.nodes import Kernel
from cake.ir.rewrite import substituted
from cake.kinds.tactic import Move, Refuses, Report, Rewrites, Tactic
from cake_plugins.tactics._kernels import ROLES, ROWS, edited
from cake_plugins.tactics._rewrite import all_expressions, taken

CONSTANT = "CTAS"
CHOICES = (132, 264, 528)

_ROW = """\
    grid(M)
    sums = Shared[f32, WARPS]
    with role("row", warps=WARPS):
        v = cast(load(x[block, :], vector=VEC, fill=0.0), f32)
        store(sums[warp], warp_sum(v))
        cta_sync()
        total = reduce_sum(load(sums[:]))
        store(y[block, :], cast(v - total, bf16), vector=VEC)
"""
_ROW_AFTER = """\
    grid(min(M, CTAS))
    sums = Shared[f32, WARPS]
    with role("row", warps=WARPS):
        for tile in range(block, M, blocks):
            v = cast(load(x[tile, :], vector=VEC, fill=0.0), f32)
            store(sums[warp], warp_sum(v))
            cta_sync()
            total = reduce_sum(load(sums[:]))
            store(y[tile, :], cast(v - total, bf16), vector=VEC)
            cta_sync()
"""


class MakePersistent(Tactic):
    symptoms = frozenset({"tail_wave"})
    cases = (
        Rewrites(
            "a row a pass",
            before=ROWS,
            after=edited(ROWS, ("=1):", "=1, CTAS: choice(132, 264, 528)=132):"), (_ROW, _ROW_AFTER)),
            key="CTAS=132",
            dims={"M": 134, "N": 64},
        ),
        Refuses("persistent already, and with mbarriers", before=ROLES, dims={"M": 64, "N": 64, "K": 64}),
        Refuses(
            "a name is taken",
            before=edited(ROWS, ("v = cast", "tile = block\n        v = cast")),
            dims={"M": 2, "N": 64},
        ),
    )

    def sites(self, kernel: Kernel, report: Report) -> Iterator[Move]:
        if not _fits(kernel):
            return
        for count in CHOICES:
            yield Move(f"{CONSTANT}={count}", f"{count} CTAs walk over the tiles", {"ctas": count})

    def apply(self, kernel: Kernel, move: Move) -> Kernel:
        count = move.parameters["ctas"]
        assert isinstance(count, int)
        body = tuple(_top(kernel, stmt) for stmt in kernel.body)
        constants = (*kernel.constants, n.Constant(CONSTANT, count, CHOICES))
        return replace(kernel, constants=constants, body=body)


def _fits(kernel: Kernel) -> bool:
    names = taken(kernel) | {e.id for e in all_expressions(kernel.body) if isinstance(e, n.Name)}
    free = not names & {CONSTANT, "tile", "blocks"}
    plain = all(isinstance(s, n.Assign | n.Require | n.Grid | n.Shared | n.Role) for s in kernel.body)
    return free and plain and len(kernel.roles) == 1 and _tiles(kernel) is not None


def _tiles(kernel: Kernel) -> n.Expr | None:
    return next((s.blocks for s in kernel.body if isinstance(s, n.Grid)), None)


def _top(kernel: Kernel, stmt: n.Stmt) -> n.Stmt:
    """A statement of the kernel's top level in the persistent kernel."""
    tiles = _tiles(kernel)
    assert tiles is not None
    if isinstance(stmt, n.Grid):
        return n.Grid(n.Call("min", (tiles, n.Name(CONSTANT))))
    if not isinstance(stmt, n.Role):
        return stmt
    inner = substituted(stmt.body, n.Name("block"), n.Name("tile"))
    shares = any(isinstance(s, n.Shared) for s in kernel.body)
    meet: tuple[n.Stmt, ...] = (n.Do(n.Call("cta_sync", ())),) if shares else ()
    loop = n.For("tile", n.Name("block"), tiles, n.Name("blocks"), (*inner, *meet))
    return replace(stmt, body=(loop,))
