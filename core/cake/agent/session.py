"""Sessions from the outside: plan one, run it or go on with it, and sum it up."""

from __future__ import annotations

import datetime
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cake import __version__
from cake.agent.archive import best
from cake.agent.loop import Loop, Progress, start_candidate
from cake.agent.publish import BranchPublisher, speedup
from cake.errors import CakeError
from cake.evaluate.evaluator import Backend, Evaluator, Target
from cake.evolve.branch import Branch
from cake.ir.arch import ALIASES, ARCHS, canonical, claimed, number
from cake.kinds.device import Device
from cake.kinds.task import Task
from cake.plugins import Registry
from cake.store.store import Entry, Store
from cake.store.tables import Session
from cake.workspace import Workspace, open_repository


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asked for; empty fields take the task's and the device's defaults."""

    task: str
    backend: Backend
    candidates: int
    seed: int
    seconds: float | None = None
    device: str = "H200"
    arch: str = ""
    shape: str = ""
    dims: Mapping[str, int] | None = None
    proposer: str = "search"


def plan(workspace: Workspace, registry: Registry, wish: Wish) -> Session:
    """The session to run, nothing recorded yet. Raises CakeError for names and values that do not exist."""
    task: Task = registry.get("task", wish.task)
    device: Device = registry.get("device", wish.device)
    registry.get("proposer", wish.proposer)
    arch = _arch(task, wish.arch, device)
    shape, dims = _dims(task, wish)
    head = open_repository(workspace.repository).head.commit
    return Session(
        id=secrets.token_hex(4),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds"),
        task=task.name(),
        arch=arch,
        device=device.name,
        backend=wish.backend,
        proposer=wish.proposer,
        shape=shape,
        dims=dims,
        seed=wish.seed,
        candidates=wish.candidates,
        seconds=wish.seconds,
        base=head.hexsha,
        version=__version__,
        start=task.kernels[arch],
    )


def begin(workspace: Workspace, store: Store, session: Session, fingerprint: Callable[[str], str]) -> None:
    """Record a planned session and its start kernel. Raises CakeError where the kernel cannot be read."""
    path = workspace.root / session.start
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CakeError(f"cannot read the start kernel {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CakeError(f"the start kernel {path} is not UTF-8 text (byte {error.start})") from None
    store.add_session(session, start_candidate(session, text, fingerprint(text)))


def target(session: Session) -> Target:
    """What the session's candidates are judged for."""
    backend: Backend = "cuda" if session.backend == "cuda" else "machine"
    return Target(session.task, session.dims, session.arch, session.device, backend, session.seed)


def proceed(
    workspace: Workspace,
    registry: Registry,
    store: Store,
    session: Session,
    evaluator: Evaluator,
    fingerprint: Callable[[str], str],
    observe: Callable[[Progress], None] = lambda progress: None,
) -> str:
    """Run a recorded session from wherever it stands to its end, owned by this process; why it ended.

    Raises CakeError where another process runs it, or where disk, git or a plugin fails.
    """
    with workspace.hold(session.id):
        branch = Branch(workspace, session.task, session.id, session.base)
        loop = Loop(
            session=session,
            store=store,
            evaluator=evaluator,
            proposer=registry.get("proposer", session.proposer),
            registry=registry,
            fingerprint=fingerprint,
            publisher=BranchPublisher(store, branch),
            observe=observe,
        )
        reason = loop.run(workspace.checkpoints)
        branch.close()
        return reason


@dataclass(frozen=True, slots=True)
class Summary:
    """A session in short. `speedup` is over the start kernel, by prediction or measurement."""

    session: Session
    entries: list[Entry]
    best: Entry | None
    speedup: float | None
    failures: list[tuple[str, str, int]]
    """(stage, code, count), by stage and then by count."""

    def as_json(self) -> dict[str, Any]:
        """The document of `cake evolve --json`."""
        stages = Counter[str]()
        for stage, _, count in self.failures:
            stages[stage] += count
        return {
            "schema": 1,
            "session": self.session.id,
            "task": self.session.task,
            "arch": self.session.arch,
            "device": self.session.device,
            "backend": self.session.backend,
            "dims": self.session.dims,
            "seed": self.session.seed,
            "state": self.session.reason or "open",
            "candidates": max(0, len(self.entries) - 1),
            "best": self._best(),
            "predicted_speedup": self.speedup if self._word() == "predicted" else None,
            "measured_speedup": self.speedup if self._word() == "measured" else None,
            "failures_by_stage": dict(stages),
            "failures": [{"stage": s, "code": c, "count": n} for s, c, n in self.failures],
        }

    def _word(self) -> str:
        measured = self.best and self.best.verdict and self.best.verdict.measured
        return "measured" if measured else "predicted"

    def _best(self) -> dict[str, Any] | None:
        timing = self.best.verdict.timing if self.best and self.best.verdict else None
        if self.best is None or timing is None:
            return None
        return {
            "candidate": self.best.candidate.id,
            "step": self.best.candidate.step,
            "hash": self.best.candidate.hash,
            "move": self.best.candidate.move,
            f"{self._word()}_seconds": timing.seconds,
            "interval": [timing.low, timing.high],
            "branch": f"evolve/{self.session.task}/{self.session.id}" if self.best.candidate.step else None,
        }


def sum_up(store: Store, session: str) -> Summary:
    """The summary of a session as it stands in the record."""
    from cake.evaluate.verdict import STAGES

    entries = store.entries(session)
    leader = best(entries)
    start = entries[0] if entries and entries[0].verdict and entries[0].verdict.timing else None
    failed = Counter((e.verdict.stage, e.verdict.code) for e in entries if e.verdict and not e.verdict.ok)
    order = sorted(failed.items(), key=lambda item: (STAGES.index(item[0][0]), -item[1], item[0][1]))
    return Summary(
        session=store.session(session),
        entries=entries,
        best=leader,
        speedup=speedup(start, leader) if start and leader else None,
        failures=[(stage, code, count) for (stage, code), count in order],
    )


def _arch(task: Task, wished: str, device: Device) -> str:
    """The start kernel's architecture: as wished, else the newest among those that run on the device."""
    known = ", ".join(task.kernels)
    chip = canonical(device.arch)
    fitting = [arch for arch in task.kernels if chip in claimed(arch)]
    if not wished:
        if not fitting:
            raise CakeError(f"task {task.name()} has no kernel for {device.name} ({chip}); it has {known}")
        return max(fitting, key=number)
    if ALIASES.get(wished, wished) not in ARCHS:
        raise CakeError(f"unknown architecture {wished!r}; cake knows {', '.join(ARCHS)}")
    found = {canonical(arch): arch for arch in task.kernels}.get(canonical(wished))
    if found is None:
        raise CakeError(f"task {task.name()} has no start kernel for {wished}; it has {known}")
    if found not in fitting:
        raise CakeError(
            f"a kernel for {found} does not run on {device.name} ({chip}); choose another --device"
        )
    return found


def _dims(task: Task, wish: Wish) -> tuple[str, dict[str, int]]:
    shape = wish.shape or next(iter(task.shapes))
    if shape not in task.shapes:
        raise CakeError(
            f"task {task.name()} has no shape {shape!r}; it has {', '.join(task.shapes)}; or give each --dim"
        )
    dims = dict(task.shapes[shape])
    for name, value in (wish.dims or {}).items():
        if name not in dims:
            raise CakeError(f"task {task.name()} has no dimension {name!r}; it has {', '.join(dims)}")
        if value < 1:
            raise CakeError(f"--dim {name}={value}: dimensions are at least 1")
        dims[name] = value
    return ("custom" if wish.dims else shape), dims
