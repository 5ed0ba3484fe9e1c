"""Runs a session of the toy workspace with an evaluator that needs no compiler: a library and a program.

    python toy_session.py WORKSPACE begin CANDIDATES SEED     prints the session's id first
    python toy_session.py WORKSPACE resume SESSION

Prints `judged STEP` after each candidate, so that a test can kill it at a place of its choice; with
CAKE_TOY_PAUSE set it then waits for a line on standard input.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from cake.agent.loop import Progress
from cake.agent.session import Wish, begin, plan, proceed
from cake.evaluate.verdict import Step, Timing, Verdict
from cake.plugins import Registry, load
from cake.store.store import Store
from cake.store.tables import Session
from cake.workspace import Workspace, open_workspace


def fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class ToyEvaluator:
    """The larger the sum the faster; numbers above 3 fail late, those below 0 early."""

    def __init__(self, pause: bool = False) -> None:
        self.judged: list[str] = []
        self.pause = pause

    def evaluate(self, text: str, beat: float | None) -> Verdict:
        self.judged.append(text)
        if self.pause:
            print("judging", flush=True)
            sys.stdin.readline()
        numbers = [int(word) for word in text.split(",")]
        if min(numbers) < 0:
            return Verdict(False, "rules", (Step("rules", 0.5),), "toy/negative", "below 0", 1)
        if max(numbers) > 3:
            return Verdict(False, "machine", (Step("machine", 0.5),), "toy/large", "above 3", 1, "count")
        seconds = 1e-3 / (1 + sum(numbers))
        timing = Timing(seconds, seconds * 0.9, seconds * 1.1, "Toy", {"bound": "toy"})
        return Verdict(True, "time", (Step("time", 0.5),), predicted=timing)

    def close(self) -> None:
        pass


def wish(candidates: int = 12, seed: int = 0, **given: object) -> Wish:
    return Wish(
        **{
            "task": "sum",
            "backend": "machine",
            "candidates": candidates,
            "seed": seed,
            "device": "Toy",
            "proposer": "count",
            **given,
        }
    )


def start(workspace: Workspace, registry: Registry, store: Store, asked: Wish) -> Session:
    session = plan(workspace, registry, asked)
    begin(workspace, store, session, fingerprint)
    return session


def table(store: Store, session: str) -> list[tuple[object, ...]]:
    """What must not depend on anything but the seed: every candidate with what was said of it."""
    rows = []
    for entry in store.entries(session):
        parent = (entry.candidate.parent or "").partition(".")[2]
        verdict = entry.verdict
        said = (verdict.ok, verdict.stage, verdict.code, verdict.timing) if verdict else None
        rows.append((entry.candidate.step, parent, entry.candidate.move, entry.candidate.text, said))
    return rows


def observe(progress: Progress) -> None:
    print(f"judged {progress.step}", flush=True)


def main(folder: str, command: str, *rest: str) -> None:
    workspace = open_workspace(Path(folder))
    workspace.prepare()
    registry = load(workspace.root)
    store = Store(workspace.database)
    if command == "begin":
        session = start(workspace, registry, store, wish(int(rest[0]), int(rest[1])))
        print(session.id, flush=True)
    else:
        session = store.session(rest[0])
    evaluator = ToyEvaluator(pause="CAKE_TOY_PAUSE" in os.environ)
    print(proceed(workspace, registry, store, session, evaluator, fingerprint, observe), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
