"""Delay the release of a stage by one step, so that tensor cores never drain

Symptom:
    `tensor_idle`: in each step the warpgroup waits for its own products (`wgmma_wait(0)`) before it issues
    the next, and the tensor cores run dry in between.
Change:
    `wgmma_wait(0)` becomes `wgmma_wait(1)`: one group stays under way. What has then finished is the step
    before, so that step's stage is released; the last stage is released after the loop.
Mechanism:
    The products of step j + 1 are queued while those of j run. The wait for the next stage, the fence and the
    issue are hidden behind tensor work.
Boundary:
    The ring holds one stage longer: with two stages the loader has none to fill and nothing is gained.
    Whatever reads the accumulators in the loop must wait for all groups; such loops are left alone.
Verify:
    `sm__inst_executed_pipe_tensor` per cycle rises; time at `wgmma_wait` falls and that at `wait(full)` does
    not grow by as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cake.ir import nodes as n
from cake.ir.nodes import Kernel
from cake.ir.rewrite import Block, over_blocks, substituted
from cake.kinds.tactic import Move, Refuses, Report, Rewrites, Tactic
from cake_plugins.tactics._kernels import RING, ROLES, edited
from cake_plugins.tactics._rewrite import calls

_BEFORE = """\
                wgmma_wait(0)
                arrive(free[s])
                it += 1
"""
_AFTER = """\
                wgmma_wait(1)
                if j > 0:
                    arrive(free[(it - 1) % STAGES])
                it += 1
            wgmma_wait(0)
            arrive(free[(it - 1) % STAGES])
"""


@dataclass(frozen=True, slots=True)
class Steps:
    """A loop to change: `wait` and `arrive` stand at these places of its body; slot `counter % period`."""

    wait: int
    arrive: int
    slot: str
    counter: n.Expr
    period: n.Expr
    counted: bool
    """The counter is a name that the loop increases, not the loop's variable."""


class DelayRelease(Tactic):
    symptoms = frozenset({"tensor_idle"})
    cases = (
        Rewrites(
            "the products of a ring",
            before=edited(ROLES, ("STAGES: choice(2, 3, 4)=2", "STAGES: choice(2, 3, 4)=3")),
            after=edited(
                ROLES, ("STAGES: choice(2, 3, 4)=2", "STAGES: choice(2, 3, 4)=3"), (_BEFORE, _AFTER)
            ),
            key="delay",
            dims={"M": 128, "N": 136, "K": 264},
        ),
        Refuses(
            "delayed already",
            before=edited(ROLES, (_BEFORE, _AFTER)),
            dims={"M": 64, "N": 64, "K": 64},
        ),
        Refuses(
            "the accumulators are read in the loop",
            before=edited(ROLES, ("arrive(free[s])\n", "arrive(free[s])\n                acc = acc * 0.5\n")),
            dims={"M": 64, "N": 64, "K": 64},
        ),
        Refuses("mma.sync has nothing under way", before=RING, dims={"M": 32, "N": 32, "K": 32}),
    )

    def sites(self, kernel: Kernel, report: Report) -> Iterator[Move]:
        loops = [s for s in n.walk(kernel.body) if isinstance(s, n.For)]
        if any(_steps(loop) is not None for loop in loops):
            yield Move("delay", "keep one group of products under way, release a stage one step later")

    def apply(self, kernel: Kernel, move: Move) -> Kernel:
        return replace(kernel, body=over_blocks(kernel.body, _delayed))


def _steps(loop: n.For) -> Steps | None:
    """The parts of `... wgmma, commit, wait(0), arrive(free[s])` in a loop from 0; None for other loops."""
    body = loop.body
    waits = [i for i, s in enumerate(body) if (call := calls(s, "wgmma_wait")) and call.args == (n.Int(0),)]
    if loop.unroll or loop.start != n.Int(0) or loop.step != n.Int(1) or len(waits) != 1:
        return None
    at = waits[0]
    release = calls(body[at + 1], "arrive") if at + 1 < len(body) else None
    rings = [s for s in body[:at] if _is_ring(s)]
    products = [s for s in body[:at] if _multiplies(s)]
    if release is None or len(rings) != 1 or not products or not calls(body[at - 1], "wgmma_commit"):
        return None
    match rings[0], release.args:
        case (
            n.Assign(targets=(slot, _), value=n.Call(args=(counter, period))),
            (n.Index(base=_, items=(n.Name(id=same),)),),
        ) if slot == same:
            rest = body[at + 2 :]
        case _:
            return None
    counted = any(_increases(s, counter) for s in rest)
    if not counted and counter != n.Name(loop.variable):
        return None
    if any(not _increases(s, counter) for s in rest):
        return None
    return Steps(at, at + 1, slot, counter, period, counted)


def _is_ring(stmt: n.Stmt) -> bool:
    return isinstance(stmt, n.Assign) and isinstance(stmt.value, n.Call) and stmt.value.name == "ring"


def _multiplies(stmt: n.Stmt) -> bool:
    return isinstance(stmt, n.Assign) and isinstance(stmt.value, n.Call) and stmt.value.name == "wgmma"


def _increases(stmt: n.Stmt, counter: n.Expr) -> bool:
    return (
        isinstance(stmt, n.Assign)
        and isinstance(counter, n.Name)
        and stmt == n.Assign((counter.id,), n.Binary("+", counter, n.Int(1)))
    )


def _delayed(block: Block) -> Block:
    out: list[n.Stmt] = []
    for stmt in block:
        steps = _steps(stmt) if isinstance(stmt, n.For) else None
        if steps is None or not isinstance(stmt, n.For):
            out.append(stmt)
            continue
        release = stmt.body[steps.arrive]
        before = _release(release, steps, n.Binary("-", steps.counter, n.Int(1)))
        end = steps.counter if steps.counted else stmt.stop
        last = _release(release, steps, n.Binary("-", end, n.Int(1)))
        body = (
            *stmt.body[: steps.wait],
            n.Do(n.Call("wgmma_wait", (n.Int(1),))),
            n.If(n.Compare(">", n.Name(stmt.variable), n.Int(0)), (before,)),
            *stmt.body[steps.arrive + 1 :],
        )
        out += [replace(stmt, body=body), n.Do(n.Call("wgmma_wait", (n.Int(0),))), last]
    return tuple(out)


def _release(release: n.Stmt, steps: Steps, step: n.Expr) -> n.Stmt:
    """`arrive(free[s])` for the slot of `step`."""
    new: n.Stmt = substituted(release, n.Name(steps.slot), n.Binary("%", step, steps.period))
    return new
