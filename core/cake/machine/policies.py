"""Schedules that hardware may take: who moves next, and when asynchronous operations read and write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Literal

from cake.ir.instance import Instance

if TYPE_CHECKING:
    from cake.machine.strands import Pending, Strand

FOR_LONG = 1 << 30


@dataclass(slots=True)
class Policy:
    """One schedule, the same each time.

    `eager`: asynchronous operations are done at their issue; otherwise as late as waits allow, the oldest or
    (`youngest`) the latest first, or at any time (`warps` "random"). `split`: they read, and write later.
    `slow`: operations that complete so ("bulk", "wgmma", ..., "barrier") come after all others. `stale`: the
    async proxy sees nothing that was not published to it. `last` names a role whose warps move
    when nobody else can; `first` one whose warps move whenever they can.
    """

    name: str
    eager: bool = False
    youngest: bool = False
    split: bool = False
    slow: str = ""
    stale: bool = False
    warps: Literal["in turn", "backwards", "random"] = "in turn"
    last: str = ""
    first: str = ""
    seed: int = 0
    random: Random = field(init=False)
    turn: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def choose(
        self, ready: Sequence[Strand], pending: Sequence[Pending]
    ) -> tuple[Strand | None, Pending | None]:
        """The warp that runs next, else the operation that advances; neither where nothing moves."""
        if self.warps == "random" and pending and (not ready or self.random.random() < 0.3):
            return None, self.random.choice(pending)
        favoured = [s for s in ready if s.warp.role.name == self.first] or [
            s for s in ready if s.warp.role.name != self.last
        ]
        if not favoured and pending and ready:
            # The laggard waits for the copy engine and the tensor cores, too.
            return None, self.next(pending)
        candidates = favoured or ready
        if not candidates:
            return None, self.next(pending) if pending else None
        if self.warps == "random":
            return self.random.choice(candidates), None
        self.turn += 1
        at = self.turn % len(candidates)
        return candidates[-1 - at if self.warps == "backwards" else at], None

    def next(self, pending: Sequence[Pending]) -> Pending:
        """The operation that advances where one must."""
        kept = [p for p in pending if p.completes != self.slow] if self.slow else pending
        return (kept or pending)[-1 if self.youngest else 0]

    def quantum(self) -> int:
        """How many instructions a warp executes before others have their turn."""
        return self.random.randint(1, 6) if self.warps == "random" else FOR_LONG

    def order(self, blocks: Sequence[int]) -> Sequence[int]:
        """CTAs are never ordered."""
        return blocks[::-1] if self.warps == "backwards" else blocks


def policies(instance: Instance, count: int, seed: int = 0) -> list[Policy]:
    """`count` schedules, the most telling first: the extremes of asynchrony, each role lagging behind or
    running ahead, then random ones."""
    found = [
        Policy("eager", eager=True),
        Policy("late", stale=True),
        Policy("late, youngest first", youngest=True, warps="backwards"),
        Policy("reads early, writes late", split=True, youngest=True),
    ]
    found += [Policy(f"{slow} last", slow=slow, stale=True) for slow in ("bulk", "wgmma", "barrier")]
    for role in instance.roles[:4] if len(instance.roles) > 1 else ():
        found.append(Policy(f"eager, {role.name} lags", eager=True, last=role.name))
        found.append(Policy(f"late, {role.name} runs ahead", first=role.name))
    number = 0
    while len(found) < count:
        number += 1
        found.append(
            Policy(f"random {number}", stale=bool(number & 1), split=True, warps="random", seed=seed + number)
        )
    return found[:count]
