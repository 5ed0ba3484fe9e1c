"""Runs a list of built kernels on this host's GPU and writes one table: `python -m cake.device.suite`.

For hosts that have the compiler half alone. Each artefact of the manifest is checked against its task's
float64 oracle on random and hostile inputs, then timed, beside torch where torch is there. A kernel that
fails is a row like any other. Exit status: 0 all right, 1 some kernel wrong, 2 bad input, 3 no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cake.device.artefact import Artefact, listed, read
from cake.device.client import DeviceClient
from cake.device.driver import DeviceFault
from cake.device.probe import DeviceInfo
from cake.device.trial import Problem, bench, check, limit, pose, pose_hostile, task_of
from cake.errors import CakeError, ExitCode
from cake.kinds.task import Task
from cake.plugins import Registry, load

TABLE = "suite.json"
HOSTILE_BYTES = 64e6
"""Hostile inputs are tried where the tensors are no larger: they look for tails and NaN, not for size."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What to do with each artefact."""

    rounds: int = 20
    l2: str = "cold"
    torch: bool = True
    hostile: bool = True
    timing: bool = True
    seed: int = 0


@dataclass(slots=True)
class Suite:
    """One run. Inputs and oracle are made once for artefacts that follow one another on the same problem."""

    registry: Registry
    wish: Wish
    client: DeviceClient
    info: DeviceInfo
    bandwidth: float
    _posed: tuple[str, Problem] | None = field(default=None)

    def row(self, artefact: Artefact) -> dict[str, Any]:
        """All that was found out about one artefact."""
        row: dict[str, Any] = {
            "name": artefact.name,
            "arch": artefact.plan.arch,
            "dims": dict(artefact.dims),
            "constants": dict(artefact.constants),
            "resources": dict(artefact.resources),
            "ok": False,
            "checks": [],
            "timing": None,
            "error": None,
        }
        try:
            task = self._task(artefact)
            row["task"] = task.name()
            problem = self._problem(task, artefact)
            problems = [problem]
            if self.wish.hostile and task.bytes(artefact.dims) <= HOSTILE_BYTES:
                problems += pose_hostile(task, artefact.dims, self.wish.seed + 1)
            row["checks"] = [check(self.client, artefact, one) for one in problems]
            row["ok"] = all(one["ok"] for one in row["checks"])
            if self.wish.timing and row["checks"][0]["ok"]:
                row["timing"] = self._timing(task, artefact, problem)
                doubts = row["timing"]["wrong"] + row["timing"]["below_floor"]
                row["ok"] = row["ok"] and artefact.name not in doubts
        except DeviceFault as fault:
            row |= {"ok": False, "error": {"code": fault.code, "message": str(fault)}}
        return row

    def _task(self, artefact: Artefact) -> Task:
        tasks = self.registry.tasks
        return tasks.get(artefact.task) or task_of(tasks, artefact.plan, artefact.dims)

    def _problem(self, task: Task, artefact: Artefact) -> Problem:
        key = f"{task.name()} {sorted(artefact.dims.items())}"
        if self._posed is None or self._posed[0] != key:
            self._posed = (key, pose(task, artefact.dims, self.wish.seed))
        return self._posed[1]

    def _timing(self, task: Task, artefact: Artefact, problem: Problem) -> dict[str, Any]:
        return bench(
            self.client,
            [(artefact.name, artefact)],
            task,
            problem,
            torch=self.wish.torch and find_spec("torch") is not None,
            rounds=self.wish.rounds,
            l2=self.wish.l2,
            floor=limit(self.registry, self.info, task, artefact.dims, self.bandwidth),
        )


def run(manifest: Path, out: Path, registry: Registry, wish: Wish) -> dict[str, Any]:
    """Run the whole manifest; the table is written anew after each row, so that a cut run keeps its rows.

    Raises CakeError for a bad manifest, MissingEnvironment without a GPU.
    """
    artefacts = [read(manifest.parent / name) for name in listed(manifest)]
    out.mkdir(parents=True, exist_ok=True)
    with DeviceClient() as client:
        info = client.probe()
        suite = Suite(registry, wish, client, info, client.copy_bandwidth() if wish.timing else 0.0)
        table: dict[str, Any] = {
            "schema": 1,
            "device": info.as_json(),
            "copy_bytes_per_second": suite.bandwidth,
            "rows": [],
        }
        for artefact in artefacts:
            row = suite.row(artefact)
            table["rows"].append(row)
            (out / TABLE).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
            sys.stdout.write(line(row) + "\n")
            sys.stdout.flush()
    return table


def line(row: dict[str, Any]) -> str:
    """One row in one line for people."""
    title = f"{row['name']:12} {row['arch']:7} {' '.join(f'{k}={v}' for k, v in row['dims'].items()):26}"
    if row["error"]:
        return f"{title} FAILED {row['error']['code']}: {row['error']['message']}"
    worst = max((float(o["worst"]) for c in row["checks"] for o in c["outputs"].values()), default=0.0)
    words = [title, "ok   " if row["ok"] else "WRONG", f"error {worst:.3f} of tolerance"]
    for one in row["checks"]:
        words += [f"{finding['code']} on {one['inputs']} inputs" for finding in one["findings"]]
        words += [f"wrong on {one['inputs']} inputs"] if not one["ok"] and not one["findings"] else []
    if timing := row["timing"]:
        words += [f"{name} is below the floor" for name in timing["below_floor"]]
        words.append(f"floor {timing['floor']['seconds'] * 1e6:.1f} us")
        for name, arm in timing["arms"].items():
            words.append(
                f"{name} {arm['median'] * 1e6:.1f} us {arm['tflops']:.1f} TFLOP/s {arm['gbps']:.0f} GB/s"
            )
        for name, ratio in timing["ratios"].items():
            words.append(f"{ratio['ratio']:.3f}x {name} [{ratio['low']:.3f}, {ratio['high']:.3f}]")
    return "  ".join(words)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m cake.device.suite", description=__doc__)
    parser.add_argument("manifest", type=Path, help="manifest.json that `cake build --out` wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder for suite.json")
    parser.add_argument("--root", type=Path, help="workspace with the tasks (the one around here)")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of interleaved bursts")
    parser.add_argument("--l2", choices=("cold", "warm"), default="cold")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--no-hostile", action="store_true")
    parser.add_argument("--no-timing", action="store_true")
    asked = parser.parse_args(arguments)
    wish = Wish(
        asked.rounds, asked.l2, not asked.no_torch, not asked.no_hostile, not asked.no_timing, asked.seed
    )
    try:
        table = run(asked.manifest, asked.out, load(asked.root), wish)
    except CakeError as error:
        sys.stderr.write(f"cake: {error}\n")
        return error.exit_code
    return ExitCode.OK if all(row["ok"] for row in table["rows"]) else ExitCode.REFUSED


if __name__ == "__main__":
    sys.exit(main())
