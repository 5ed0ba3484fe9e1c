"""What the check sees: mutants of every golden kernel killed, equivalent or surviving; false alarms; speed.

    python -m bench.mutation [--quick] [--cases] [--seed S] [--json OUT] [--processes N]

A mutant does harm, or is shown equivalent by execution; a rewrite keeps what a kernel does by construction,
and any report on it is a false alarm. `--quick` draws a sample by the seed that one core judges within 50 s;
`--cases` takes the kernels in the primitives' own cases in place of the golden ones: every instruction there
is. What the facts alone report is executed as well unless `--quick`, and listed where no schedule shows harm.
Goals: static rules under 10 ms, a check on its chosen shapes under 300 ms (medians). The last line sums up;
exit status 1 when a mutant survived or a rewrite was reported.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from cake.ir import Kernel, instantiate, parse
from cake.kinds.primitive import Good
from cake.mutate import (
    OPERATORS,
    PRESERVING,
    STAGES,
    Count,
    Mutant,
    Truth,
    derive,
    false_alarms,
    judge,
    subject,
    task_of,
)
from cake.plugins import Registry, load
from cake.verify import check
from cake.verify.contained import Contained
from cake.verify.engine import static_findings
from cake.verify.instances import Choice, choose

ROOT = Path(__file__).resolve().parent.parent
QUICK_MUTANTS, QUICK_REWRITES = 110, 40
"""Sizes of the sample, shared by the kernels."""
QUICK_SECONDS = 40.0
"""A slower machine judges fewer mutants, and says so."""
CHUNK = 6


@dataclass(frozen=True, slots=True)
class Work:
    """Some mutants of one kernel: `harmful` ones or rewrites, number `start` to `stop` of the sample."""

    cases: bool
    kernel: str
    harmful: bool
    sample: int | None
    seed: int
    start: int
    stop: int


@cache
def plugins() -> Registry:
    return load(ROOT)


@cache
def corpus(cases: bool) -> dict[str, tuple[Kernel, Mapping[str, int] | None]]:
    """Kernels that the check accepts, by name, each with the shape to execute it on (None: it chooses)."""
    registry = plugins()
    if not cases:
        texts = {name: path.read_text(encoding="utf-8") for name, path in registry.kernels.items()}
        return {name: (parse(text, f"{name}.cake"), None) for name, text in texts.items()}
    found: dict[str, tuple[Kernel, Mapping[str, int] | None]] = {}
    for primitive in {type(p): p for p in registry.primitives.values()}.values():
        for case in primitive.cases:
            name = f"{primitive.names[0]}: {case.name}"
            if isinstance(case, Good) and case.dims:
                kernel = parse(case.kernel, name)
                if check(kernel, registry, dims=case.dims).ok:
                    found[name] = (kernel, case.dims)
    return found


@cache
def mutants(
    cases: bool, kernel: str, harmful: bool, sample: int | None, seed: int
) -> tuple[list[Mutant], Truth]:
    """The kernel's mutants, and the truth that they are held against."""
    registry = plugins()
    text, dims = corpus(cases)[kernel]
    parent = subject(text, registry, dims)
    drawn = derive(parent, OPERATORS if harmful else PRESERVING, sample, seed)
    task = None if cases else task_of(registry, parent.kernel)
    return drawn, Truth(parent.kernel, registry, task, thorough=sample is None, dims=dims)


def judged(work: Work) -> list[dict[str, Any]]:
    """The outcomes of the work, as plain data."""
    drawn, truth = mutants(work.cases, work.kernel, work.harmful, work.sample, work.seed)
    part = drawn[work.start : work.stop]
    if work.harmful:
        full = work.sample is None
        outcomes = [judge(mutant, truth, plugins(), confirm=full) for mutant in part]
        return [{"kernel": work.kernel, **outcome.as_json()} for outcome in outcomes]
    return [
        {
            "kernel": work.kernel,
            "operator": mutant.operator,
            "description": mutant.description,
            "difference": mutant.difference,
            "code": diagnostic.code,
            "message": diagnostic.message,
        }
        for mutant, diagnostic in false_alarms(part, plugins(), truth.dims)
    ]


# --- the run ----------------------------------------------------------------------------------------------


def planned(kernels: Sequence[str], cases: bool, quick: bool, seed: int) -> list[Work]:
    """Chunks of all kernels in turn, so that a run cut short has seen each."""
    piles = []
    for kernel in kernels:
        for harmful, total in ((True, QUICK_MUTANTS), (False, QUICK_REWRITES)):
            sample = max(1, total // len(kernels)) if quick else None
            number = len(mutants(cases, kernel, harmful, sample, seed)[0])
            starts = range(0, number, CHUNK)
            pile = [Work(cases, kernel, harmful, sample, seed, i, min(i + CHUNK, number)) for i in starts]
            piles.append(pile)
    turns = max(map(len, piles))
    return [pile[turn] for turn in range(turns) for pile in piles if turn < len(pile)]


def results(works: Sequence[Work], processes: int) -> Iterator[tuple[Work, list[dict[str, Any]]]]:
    """Each work with its outcomes, in order."""
    if processes == 1:
        yield from ((work, judged(work)) for work in works)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from zip(works, pool.map(judged, works), strict=True)


def speeds(cases: bool) -> dict[str, list[float]]:
    """Milliseconds: static rules an instance, and a whole check a kernel."""
    registry = plugins()
    static: list[float] = []
    checks: list[float] = []
    for kernel, dims in corpus(cases).values():
        for choice in choose(kernel, {}) if dims is None else [Choice(dims, {})]:
            instance = instantiate(kernel, choice.dims, choice.constants, primitives=registry.primitives)
            began = perf_counter()
            static_findings(instance, registry, Contained([]))
            static.append(1e3 * (perf_counter() - began))
        checks.append(1e3 * check(kernel, registry, dims=dims).seconds)
    return {"static rules, an instance": static, "whole check, a kernel": checks}


def spread(values: Sequence[float]) -> str:
    """`median 1.2 ms, p95 3.4 ms`."""
    high = quantiles(values, n=20)[-1] if len(values) > 1 else values[0]
    return f"median {median(values):.1f} ms, p95 {high:.1f} ms, n={len(values)}"


def counted(outcomes: Sequence[dict[str, Any]], key: str) -> dict[str, Count]:
    """How many ended how, by kernel or operator."""
    counts: dict[str, Count] = {}
    for outcome in outcomes:
        counts.setdefault(outcome[key], Count()).add(outcome["verdict"])
    return dict(sorted(counts.items()))


def table(title: str, counts: dict[str, Count]) -> str:
    rows = [(title, "killed", "equivalent", "survived")]
    rows += [(name, str(c.killed), str(c.equivalent), str(c.survived)) for name, c in counts.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def shown(outcome: dict[str, Any]) -> str:
    """A mutant in a few lines."""
    lines = [*(f"  - {line}" for line in outcome["removed"]), *(f"  + {line}" for line in outcome["added"])]
    head = f"{outcome['kernel']}:{outcome['line']}: {outcome['operator']}: {outcome['description']}"
    return "\n".join([head, *lines, *([f"  {outcome['reason']}"] if outcome["reason"] else [])])


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutate the golden kernels and count what the check sees.")
    parser.add_argument("--quick", action="store_true", help="a sample, on one core within 50 s")
    parser.add_argument("--cases", action="store_true", help="the primitives' cases, not the golden kernels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write every outcome here")
    parser.add_argument("--processes", type=int, default=0, help="of the full run (default: all cores)")
    options = parser.parse_args()
    began = perf_counter()
    kernels = list(corpus(options.cases))
    works = planned(kernels, options.cases, options.quick, options.seed)
    processes = 1 if options.quick else options.processes or os.cpu_count() or 1
    outcomes: list[dict[str, Any]] = []
    alarms: list[dict[str, Any]] = []
    rewrites = 0
    for number, (work, found) in enumerate(results(works, processes)):
        if work.harmful:
            outcomes += found
        else:
            alarms += found
            rewrites += work.stop - work.start
        if options.quick and perf_counter() - began > QUICK_SECONDS:
            left = sum(w.stop - w.start for w in works[number + 1 :])
            print(f"cut short after {QUICK_SECONDS:g} s: {left} of the sample not judged")
            break
    measured = speeds(options.cases)
    measured["check, a mutant"] = [outcome["milliseconds"] for outcome in outcomes]
    report(outcomes, alarms, rewrites, measured)
    if options.json:
        document = {"schema": 1, "seed": options.seed, "quick": options.quick, "mutants": outcomes}
        document |= {"rewrites": rewrites, "false_alarms": alarms, "milliseconds": measured}
        options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    survived = sum(outcome["verdict"] == "survived" for outcome in outcomes)
    return 1 if survived or alarms else 0


def report(
    outcomes: Sequence[dict[str, Any]],
    alarms: Sequence[dict[str, Any]],
    rewrites: int,
    measured: dict[str, list[float]],
) -> None:
    """Tables, survivors, false alarms, speed, and the line that sums up."""
    print(table("kernel", counted(outcomes, "kernel")), end="\n\n")
    print(table("operator", counted(outcomes, "operator")), end="\n\n")
    for outcome in outcomes:
        if outcome["verdict"] == "survived":
            print(f"survived: {shown(outcome)}\n")
    doubtful = [outcome for outcome in outcomes if outcome["unconfirmed"]]
    for outcome in doubtful:
        print(f"unconfirmed, {', '.join(outcome['codes'])}: {shown(outcome)}\n")
    for alarm in alarms:
        print(f"false alarm: {alarm['kernel']}: {alarm['operator']}: {alarm['description']}: {alarm['code']}")
        print(f"  {alarm['message']}\n")
    print(f"killed by the facts alone, without a schedule that shows the harm: {len(doubtful)}")
    stages = ", ".join(f"{s} {sum(o['stage'] == s for o in outcomes)}" for s in STAGES)
    print(f"killed by: {stages}; rewrites that keep the kernel: {rewrites}")
    for name, values in measured.items():
        print(f"{name}: {spread(values)}")
    total = Count()
    for outcome in outcomes:
        total.add(outcome["verdict"])
    print(
        f"killed={total.killed}/{total.harmful} equivalent={total.equivalent} "
        f"survived={total.survived} false_alarms={len(alarms)}"
    )


if __name__ == "__main__":
    sys.exit(main())
