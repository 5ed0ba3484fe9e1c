"""Defer the wait for a bulk store until its buffer is needed again

Symptom:
    `epilogue_exposed`: after each tile the warpgroup waits for its own stores before it goes on.
Change:
    In a loop over tiles, `bulk_wait_read(0)` right after `bulk_commit()` moves, with the rendezvous that
    follows it, to just before the staging buffer is written again; a last wait stands behind the loop.
Mechanism:
    The copy engine reads the staged tile while the next one is computed. By the time the buffer is needed the
    stores have long been done and the wait costs nothing.
Boundary:
    Only where one buffer is staged and stored once in each pass. A kernel that ends after the store gains
    nothing, for the CTA may not exit before its stores have read.
Verify:
    Time at the epilogue's waits falls to nothing; tensor cores resume earlier after each tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cake.ir import nodes as n
from cake.ir.nodes import Kernel
from cake.ir.rewrite import Block, over_blocks
from cake.kinds.tactic import Move, Refuses, Report, Rewrites, Tactic
from cake_plugins.tactics._kernels import RING, ROLES, edited
from cake_plugins.tactics._rewrite import calls

_EARLY = edited(
    ROLES,
    (
        """\
            with one_thread("warpgroup"):
                bulk_wait_read(0)
            named_sync(1 + warpgroup, warps=4)
            stmatrix(""",
        """\
            stmatrix(""",
    ),
    (
        """\
                bulk_commit()
        with one_thread("warpgroup"):
            bulk_wait_read(0)
""",
        """\
                bulk_commit()
                bulk_wait_read(0)
            named_sync(1 + warpgroup, warps=4)
""",
    ),
)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Places in the body of a loop: where the buffer is written, where it is stored, the rendezvous after."""

    write: int
    store: int
    meet: int


class DeferStoreWait(Tactic):
    symptoms = frozenset({"epilogue_exposed", "tensor_idle"})
    cases = (
        Rewrites(
            "the staged tile of a persistent kernel",
            before=_EARLY,
            after=ROLES,
            key="defer",
            dims={"M": 328, "N": 136, "K": 72},
        ),
        Refuses("deferred already", before=ROLES, dims={"M": 64, "N": 64, "K": 64}),
        Refuses("no bulk store", before=RING, dims={"M": 32, "N": 32, "K": 32}),
    )

    def sites(self, kernel: Kernel, report: Report) -> Iterator[Move]:
        loops = [s for s in n.walk(kernel.body) if isinstance(s, n.For)]
        if any(_epilogue(loop) is not None for loop in loops):
            yield Move("defer", "wait for a tile's stores when its buffer is written again")

    def apply(self, kernel: Kernel, move: Move) -> Kernel:
        return replace(kernel, body=over_blocks(kernel.body, _deferred))


def _epilogue(loop: n.For) -> Epilogue | None:
    stores = [i for i, s in enumerate(loop.body) if isinstance(s, n.OneThread) and _waits_at_once(s)]
    if len(stores) != 1 or stores[0] + 1 >= len(loop.body):
        return None
    at = stores[0]
    staged = {
        call.args[1].base
        for call in n.calls((loop.body[at],))
        if call.name == "tma_store" and len(call.args) > 1 and isinstance(call.args[1], n.Index)
    }
    meet = loop.body[at + 1]
    if len(staged) != 1 or not (calls(meet, "named_sync") or calls(meet, "cta_sync")):
        return None
    writes = [i for i, s in enumerate(loop.body[:at]) if _writes(s, next(iter(staged)))]
    return Epilogue(writes[0], at, at + 1) if writes else None


def _waits_at_once(stmt: n.OneThread) -> bool:
    return (
        len(stmt.body) >= 2
        and calls(stmt.body[-2], "bulk_commit") is not None
        and calls(stmt.body[-1], "bulk_wait_read") == n.Call("bulk_wait_read", (n.Int(0),))
    )


def _writes(stmt: n.Stmt, buffer: str) -> bool:
    """Whether a statement's call has a window of `buffer` as its first operand."""
    return (
        isinstance(stmt, n.Do)
        and bool(stmt.call.args)
        and isinstance(stmt.call.args[0], n.Index)
        and stmt.call.args[0].base == buffer
    )


def _deferred(block: Block) -> Block:
    out: list[n.Stmt] = []
    for stmt in block:
        found = _epilogue(stmt) if isinstance(stmt, n.For) else None
        if found is None or not isinstance(stmt, n.For):
            out.append(stmt)
            continue
        store = stmt.body[found.store]
        assert isinstance(store, n.OneThread)
        wait = n.OneThread(store.scope, (store.body[-1],))
        body = (
            *stmt.body[: found.write],
            wait,
            stmt.body[found.meet],
            *stmt.body[found.write : found.store],
            replace(store, body=store.body[:-1]),
            *stmt.body[found.meet + 1 :],
        )
        out += [replace(stmt, body=body), wait]
    return tuple(out)
