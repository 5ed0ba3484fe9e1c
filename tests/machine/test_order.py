"""The engine's verdict on random programs against an independent happens-before graph.

Three warps run straight-line programs over one buffer and two mbarriers. The reference executes the same
programs on its own, builds the graph of what orders what, and asks for paths; the engine uses clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from cake.ir import instantiate, parse
from cake.machine import facts as ft
from cake.machine.engine import run
from tests.machine.toy import PRIMITIVES

WARPS = 3
Line = tuple[str, int]
"""An operation and the mbarrier (0, 1) or parity it concerns."""

LINES = st.sampled_from(
    [("put", 0), ("get", 0), ("copy_out", 0), ("drain", 0), ("publish", 0), ("meet", 0)]
    + [("copy_in", b) for b in (0, 1)]
    + [("arrive", b) for b in (0, 1)]
    + [("wait", b) for b in (0, 1)]
)
PROGRAMS = st.lists(st.lists(LINES, max_size=6), min_size=WARPS, max_size=WARPS)


def kernel_text(programs: list[list[Line]]) -> str:
    """The programs as a kernel; each `wait` is for the phase after the warp's previous one."""
    out = [
        '@kernel(arch="sm_80")',
        "def k(x: Global[f32, N]):",
        "    grid(1)",
        "    s = Shared[f32, 4]",
        "    b = MBarrier[2](arrivals=1)",
        "    with one_thread():",
        "        init(b[0], 1)",
        "        init(b[1], 1)",
        f"    meet(2, {WARPS})",
    ]
    for number, program in enumerate(programs):
        out.append(f'    with role("r{number}", warps=1):')
        waited = [0, 0]
        for name, which in program:
            if name == "wait":
                out.append(f"        wait(b[{which}], {waited[which] & 1})")
                waited[which] += 1
            else:
                out.append(f"        {TEXT[name].format(b=which)}")
        out.append("        pass")
    return "\n".join(out) + "\n"


TEXT = {
    "put": "put(s[:])",
    "get": "get(s[:])",
    "copy_in": "copy_in(s[:], b[{b}], 16)",
    "copy_out": "copy_out(s[:])\n        commit()",
    "drain": "drain(0)",
    "publish": "publish()",
    "meet": f"meet(1, {WARPS})",
    "arrive": "arrive(b[{b}], 16)",
}


@dataclass
class Graph:
    """Edges between numbered events."""

    after: list[set[int]] = field(default_factory=list)

    def node(self, *before: int) -> int:
        self.after.append(set())
        for b in before:
            self.after[b].add(len(self.after) - 1)
        return len(self.after) - 1

    def path(self, a: int, b: int) -> bool:
        todo, seen = [a], {a}
        while todo:
            for nxt in self.after[todo.pop()] - seen:
                seen.add(nxt)
                todo.append(nxt)
        return b in seen


@dataclass
class Access:
    warp: int
    write: bool
    start: int
    end: int
    asynchronous: bool


class Reference:
    """Executes the programs and collects graph and accesses."""

    def __init__(self, programs: list[list[Line]]) -> None:
        self.programs = programs
        self.graph = Graph()
        self.last = [self.graph.node() for _ in range(WARPS)]
        self.fences: list[tuple[int, int]] = []
        self.at = [0] * WARPS
        self.waited = [[0, 0] for _ in range(WARPS)]
        self.phases: list[list[int]] = [[], []]
        self.gathered: list[list[int]] = [[], []]
        self.pending, self.bytes = [1, 1], [0, 0]
        self.groups: list[list[int]] = [[] for _ in range(WARPS)]
        self.meeting: list[int] = []
        self.inside: dict[int, int] = {}
        self.racy = self.stuck = self.overflow = False
        self.accesses: list[Access] = []

    def go(self) -> None:
        """In the engine's order: the last warp to come to the first rendezvous goes on first."""
        while self.at[WARPS - 1] < len(self.programs[WARPS - 1]) and self.step(WARPS - 1):
            pass
        moved = True
        while moved:
            moved = False
            for warp in range(WARPS):
                while self.at[warp] < len(self.programs[warp]) and self.step(warp):
                    moved = True
        self.stuck = any(self.at[w] < len(self.programs[w]) for w in range(WARPS))

    def advance(self, b: int) -> None:
        if self.pending[b] == 0 and self.bytes[b] == 0:
            before = self.phases[b][-1:]
            self.phases[b].append(self.graph.node(*self.gathered[b], *before))
            self.gathered[b], self.pending[b] = [], 1

    def step(self, warp: int) -> bool:
        name, which = self.programs[warp][self.at[warp]]
        if name == "wait":
            target = self.waited[warp][which]
            known = sum(self.graph.path(phase, self.last[warp]) for phase in self.phases[which])
            needed = known if known % 2 != target % 2 else known + 1
            if len(self.phases[which]) < needed:
                return False
            self.waited[warp][which] += 1
            self.tick(warp, *self.phases[which][:needed][-1:])
        elif name == "meet":
            return self.meet(warp)
        else:
            self.act(warp, name, which)
        self.at[warp] += 1
        return True

    def tick(self, warp: int, *before: int) -> int:
        self.last[warp] = self.graph.node(self.last[warp], *before)
        return self.last[warp]

    def meet(self, warp: int) -> bool:
        if warp in self.inside:
            joint = self.inside[warp]
            if joint < 0:
                return False
            del self.inside[warp]
            self.tick(warp, joint)
            self.at[warp] += 1
            return True
        self.inside[warp] = -1
        if list(self.inside.values()).count(-1) == WARPS:
            joint = self.graph.node(*self.last)
            self.inside = dict.fromkeys(self.inside, joint)
            return self.meet(warp)
        return False

    def act(self, warp: int, name: str, which: int) -> None:
        now = self.tick(warp)
        if name in ("put", "get"):
            self.touch(Access(warp, name == "put", now, now, False))
        elif name == "publish":
            self.fences.append((warp, now))
        elif name == "drain":
            for end in self.groups[warp]:
                self.graph.after[end].add(now)
        elif name == "arrive":
            if self.pending[which] == 0:
                self.overflow = True
                return
            self.pending[which] -= 1
            self.bytes[which] += 16
            self.gathered[which].append(now)
            self.advance(which)
        else:
            end = self.graph.node(now)
            self.touch(Access(warp, name == "copy_in", now, end, True))
            if name == "copy_out":
                self.groups[warp].append(end)
            else:
                self.bytes[which] -= 16
                self.gathered[which].append(end)
                self.advance(which)

    def touch(self, new: Access) -> None:
        """Against the last write and the reads since it."""
        for old in reversed(self.accesses):
            if (old.write or new.write) and not self.ordered(old, new):
                self.racy = True
            if old.write:
                break
        self.accesses.append(new)

    def ordered(self, old: Access, new: Access) -> bool:
        if old.asynchronous or not new.asynchronous:
            return self.graph.path(old.end, new.start)
        return any(
            warp == old.warp and self.graph.path(old.start, fence) and self.graph.path(fence, new.start)
            for warp, fence in self.fences
        )


@settings(max_examples=400, deadline=None)
@given(PROGRAMS)
def test_clocks_agree_with_paths(programs: list[list[Line]]) -> None:
    reference = Reference(programs)
    reference.go()
    instance = instantiate(parse(kernel_text(programs)), {"N": 4}, primitives=PRIMITIVES)
    facts = run(instance).facts
    stuck = any(isinstance(f, ft.Deadlock | ft.Transactions) for f in facts.findings)
    overflow = any(isinstance(f, ft.BarrierMisuse) and f.kind == "too_many_arrivals" for f in facts.findings)
    assert overflow == reference.overflow
    if not overflow:
        assert any(True for _ in facts.of(ft.Race)) == reference.racy
        assert not reference.stuck or stuck


def test_the_reference_knows_a_race_and_a_fence() -> None:
    racy = Reference([[("put", 0)], [("get", 0)], []])
    racy.go()
    assert racy.racy
    fenced = Reference(
        [[("put", 0), ("publish", 0), ("meet", 0)], [("meet", 0), ("copy_out", 0)], [("meet", 0)]]
    )
    fenced.go()
    assert not fenced.racy
