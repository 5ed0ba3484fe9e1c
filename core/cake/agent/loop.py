"""The loop as a LangGraph state graph: select parent, propose, ladder, record, reflect, and again.

The state holds ids only; what they stand for is in the store. A checkpoint is written after every node, and
a node that was cut short runs again: each looks for its own effect by action id before it acts. So the
store alone suffices to go on: without checkpoints the loop walks through what is recorded and arrives at the
same place.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from cake.agent.archive import best, derive, parents, past
from cake.errors import BrokenPlugin, CakeError
from cake.evaluate.evaluator import Evaluator
from cake.evaluate.verdict import Verdict, beats
from cake.evolve.ledger import is_case
from cake.kinds.proposer import Past, Proposal, Proposer, Request
from cake.store.database import words_for_errors
from cake.store.store import Entry, Store
from cake.store.tables import Candidate, Session

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph.state import CompiledStateGraph

ATTEMPTS = 6
"""Duplicates that one parent may give in one step before another parent is asked."""

KEPT_CHECKPOINTS = 3


class State(TypedDict):
    """Ids only. `step` counts proposals, 0 is the start kernel; `done` says why the session ends."""

    step: int
    parent: str
    candidate: str
    done: str


class Publisher(Protocol):
    """Commits results; the same action twice is one commit. Answers the commit's hash."""

    def winner(self, session: Session, entry: Entry, start: Entry) -> str: ...

    def record(self, session: Session, entry: Entry) -> str: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """What an observer is told after each judged candidate."""

    entry: Entry
    improved: bool
    step: int
    candidates: int


@dataclass(frozen=True, slots=True)
class Loop:
    """One session's loop. `run` goes from wherever the session stands to its end."""

    session: Session
    store: Store
    evaluator: Evaluator
    proposer: Proposer
    registry: Any
    fingerprint: Callable[[str], str]
    """Content hash of a kernel text, whatever it holds."""
    publisher: Publisher
    observe: Callable[[Progress], None] = field(default=lambda progress: None)
    _judged: list[Entry] = field(default_factory=list, init=False)
    """Candidates with verdicts by step, as read so far; neither changes once it is written."""

    def run(self, checkpoints: Path) -> str:
        """Go on to the end and say why it came: budget, exhausted, seconds or start.

        Raises CakeError where the disk, git or a plugin fails; everything up to there is recorded.
        """
        from langgraph.checkpoint.sqlite import SqliteSaver

        with words_for_errors(checkpoints):
            connection = sqlite3.connect(checkpoints, check_same_thread=False, timeout=30)
        with words_for_errors(checkpoints), closing(connection):
            saver = SqliteSaver(connection)
            graph = self._graph(saver)
            config: RunnableConfig = {
                "configurable": {"thread_id": self.session.id},
                "recursion_limit": 6 * (self.session.candidates + 2),
            }
            going = graph.get_state(config).next
            first = None if going else State(step=0, parent="", candidate=self._id(0), done="")
            for _ in graph.stream(first, config, stream_mode="updates", durability="sync"):
                _prune(saver, self.session.id)
            reason = str(graph.get_state(config).values["done"])
        self.store.finish(self.session.id, reason)
        return reason

    def _graph(self, saver: SqliteSaver) -> CompiledStateGraph[State, None, State, State]:
        from langgraph.graph import END, START, StateGraph

        graph = StateGraph(State)
        graph.add_node("select", self._select)
        graph.add_node("propose", self._propose)
        graph.add_node("ladder", self._ladder)
        graph.add_node("record", self._record)
        graph.add_node("reflect", self._reflect)
        graph.add_edge(START, "ladder")
        graph.add_edge("select", "propose")
        graph.add_conditional_edges("propose", _end_or("ladder"), ["ladder", "reflect"])
        graph.add_edge("ladder", "record")
        graph.add_edge("record", "reflect")
        graph.add_conditional_edges("reflect", lambda state: END if state["done"] else "select")
        return graph.compile(checkpointer=saver)

    # --- nodes --------------------------------------------------------------------------------------------

    def _select(self, state: State) -> dict[str, Any]:
        step = state["step"] + 1
        [parent, *_] = self._parents(step)
        self.store.add_event(self.session.id, step, "parent", {"candidate": parent.id})
        return {"step": step, "parent": parent.id, "candidate": ""}

    def _propose(self, state: State) -> dict[str, Any]:
        step = state["step"]
        known = self.store.candidate(self._id(step))
        if known is None:
            found = self._search(step)
            if found is None:
                return {"done": "exhausted"}
            self.store.add_candidate(found)
            known = found
        return {"candidate": known.id, "parent": known.parent}

    def _ladder(self, state: State) -> dict[str, Any]:
        candidate = self.store.candidate(state["candidate"])
        assert candidate is not None
        if self.store.verdict(candidate.id) is None:
            leader = best(self._before(candidate.step))
            timing = leader.verdict.timing if leader and leader.verdict else None
            verdict = self.evaluator.evaluate(candidate.text, timing.seconds if timing else None)
            self.store.add_verdict(candidate.id, verdict)
        return {}

    def _record(self, state: State) -> dict[str, Any]:
        step = state["step"]
        entries = self._before(step + 1)
        [*earlier, entry] = entries
        improved = _improves(entry.verdict, best(earlier))
        if improved and earlier:
            self.publisher.winner(self.session, entry, entries[0])
        self.observe(Progress(entry, improved, step, self.session.candidates))
        return {}

    def _reflect(self, state: State) -> dict[str, Any]:
        step = state["step"]
        self._open_cases(step)
        done = state["done"] or self._end(step)
        leader = best(self._before(step + 1))
        if done and leader is not None and leader.candidate.step > 0:
            self.publisher.record(self.session, leader)
        return {"done": done}

    # --- their parts --------------------------------------------------------------------------------------

    def _end(self, step: int) -> str:
        entries = self._before(step + 1)
        if best(entries) is None:
            return "start"
        if step >= self.session.candidates:
            return "budget"
        # What the ladder cost, not the clock on the wall: a resumed session has what is left of it.
        spent = sum(entry.verdict.seconds for entry in entries if entry.verdict)
        if self.session.seconds is not None and spent >= self.session.seconds:
            return "seconds"
        return ""

    def _open_cases(self, step: int) -> None:
        for kind in self.store.failures(self.session.id):
            if is_case(kind.failure.stage, kind.count, kind.lineages):
                detail = {"signature": kind.failure.signature, "code": kind.failure.code}
                self.store.add_case(self.session.id, step, kind.failure.signature, detail)

    def _search(self, step: int) -> Candidate | None:
        """Ask the proposer for something new: of the chosen parent first, then of the others."""
        judged = [past(entry) for entry in self._before(step)]
        known = {entry.candidate.hash for entry in self._before(step)}
        history = [*judged, *self._dropped(step)]
        for parent in self._parents(step):
            for attempt in range(ATTEMPTS):
                seed = derive(self.session.seed, step, parent.id.rpartition(".")[2], attempt)
                proposal = self._ask(parent, history, seed)
                if proposal is None:
                    break
                name = self.fingerprint(proposal.text)
                if name not in known:
                    return self._candidate(step, parent, proposal, name)
                detail = {"parent": parent.id, "move": proposal.move}
                key = f"{parent.id.rpartition('.')[2]}.{attempt}"
                self.store.add_event(self.session.id, step, "duplicate", detail, key)
                history.append(_duplicate(detail))
        return None

    def _ask(self, parent: Past, history: Sequence[Past], seed: int) -> Proposal | None:
        request = Request(
            parent=parent,
            history=tuple(history),
            dims=self.session.dims,
            arch=self.session.arch,
            seed=seed,
            registry=self.registry,
        )
        try:
            return self.proposer.propose(request)
        except CakeError:
            raise
        except Exception as error:  # a plugin: whatever it raises is its fault, and the session can go on
            raise BrokenPlugin(
                f"proposer {self.proposer.name()} failed: {type(error).__name__}: {error}; "
                f"mend it, then `cake resume {self.session.id}`"
            ) from error

    def _candidate(self, step: int, parent: Past, proposal: Proposal, name: str) -> Candidate:
        origin = self.store.candidate(parent.id)
        assert origin is not None
        return Candidate(
            id=self._id(step),
            session=self.session.id,
            step=step,
            parent=parent.id,
            generation=origin.generation + 1,
            lineage=origin.lineage if origin.generation else self._id(step),
            proposer=self.proposer.name(),
            move=proposal.move,
            notes=dict(proposal.notes),
            text=proposal.text,
            hash=name,
        )

    def _parents(self, step: int) -> list[Past]:
        judged = [past(entry) for entry in self._before(step)]
        return parents(judged, derive(self.session.seed, step, "parent"))

    def _dropped(self, step: int) -> list[Past]:
        """Duplicates of earlier steps, so that proposers do not offer them again."""
        events = self.store.events(self.session.id)
        return [_duplicate(e.detail) for e in events if e.kind == "duplicate" and e.step < step]

    def _before(self, step: int) -> list[Entry]:
        """What was known before `step` began: a step that runs again must see what it saw at first."""
        self._judged.extend(e for e in self.store.entries(self.session.id, len(self._judged)) if e.verdict)
        return self._judged[:step]

    def _id(self, step: int) -> str:
        return f"{self.session.id}.{step:04d}"


def start_candidate(session: Session, text: str, name: str) -> Candidate:
    """The session's candidate 0, the kernel that the search begins with."""
    id = f"{session.id}.{0:04d}"
    return Candidate(
        id=id,
        session=session.id,
        step=0,
        generation=0,
        lineage=id,
        proposer="start",
        move="start",
        notes={},
        text=text,
        hash=name,
    )


def _improves(verdict: Verdict | None, leader: Entry | None) -> bool:
    if verdict is None or verdict.timing is None:
        return False
    old = leader.verdict.timing if leader and leader.verdict else None
    return old is None or beats(verdict.timing, old)


def _duplicate(detail: Mapping[str, str]) -> Past:
    return Past("", detail["parent"], "", detail["move"], "duplicate", "duplicate", None)


def _end_or(node: str) -> Callable[[State], str]:
    return lambda state: "reflect" if state["done"] else node


def _prune(saver: SqliteSaver, thread: str) -> None:
    """Keep the last checkpoints of a session: the saver itself never deletes any."""
    with saver.cursor() as cursor:
        cursor.execute(
            "DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_id NOT IN (SELECT checkpoint_id"
            " FROM checkpoints WHERE thread_id = ? ORDER BY checkpoint_id DESC LIMIT ?)",
            (thread, thread, KEPT_CHECKPOINTS),
        )
        cursor.execute(
            "DELETE FROM writes WHERE thread_id = ? AND checkpoint_id NOT IN (SELECT checkpoint_id"
            " FROM checkpoints WHERE thread_id = ?)",
            (thread, thread),
        )
