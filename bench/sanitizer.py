"""Mutants on a real GPU: what compute-sanitizer and a wrong-answer check catch beside the verifier.

    python -m bench.sanitizer prepare OUT [--count N] [--seed S]   sample, judge and compile; needs no GPU
    python -m bench.sanitizer run OUT --out RESULTS                on the GPU's host, with what is in OUT
    python -m bench.sanitizer report RESULTS.json                  the table

Sampled are mutants of the golden kernels for sm_90a that can be compiled, and each kernel itself as a
control. A mutant is launched alone and its outputs compared with the task's oracle (twice, bit for bit),
then once under each tool of compute-sanitizer. Every launch is a process of its own with a deadline that
kills: a kernel that never ends is caught by its clock.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

from cake.codegen import compile_source, generate
from cake.device.artefact import Artefact, read
from cake.diagnostics import KernelErrors
from cake.ir import Kernel, content_hash, instantiate, parse
from cake.ir.arch import canonical
from cake.kinds.task import Task
from cake.plugins import Registry, load
from cake.verify.contract import holds

ROOT = Path(__file__).resolve().parent.parent
ARCH = "sm_90a"
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
ALONE_S, TOOL_S = 12.0, 12.0
"""Deadlines: of a launch that takes microseconds, and of one under a tool."""
FEW = 4
"""Processes on the GPU while kernels that never end may be among them."""
CAUGHT = 88
"""Exit status that compute-sanitizer is told to end with where it found something."""
AXES = {"M": 264, "N": 264, "K": 336, "S": 264, "B": 2, "D": 128}
"""Several tiles, a tail and a full turn of every ring. Persistent kernels get two CTAs."""


# --- prepare ----------------------------------------------------------------------------------------------


def subjects(registry: Registry) -> dict[str, tuple[Kernel, Task]]:
    """The golden kernels for sm_90a and their tasks."""
    from cake.mutate import task_of

    found = {}
    for name, path in registry.kernels.items():
        kernel = parse(path.read_text(encoding="utf-8"), path.name)
        task = task_of(registry, kernel)
        if canonical(kernel.arch) == ARCH and task is not None:
            found[name] = (kernel, task)
    return found


def shape_of(kernel: Kernel, task: Task) -> dict[str, int]:
    """Dims small enough for the tools; the task's own where the contract wants others."""
    dims = {name: min(AXES.get(name, 264), task.shapes["tails"][name]) for name in kernel.dims}
    constants = {c.name: c.default for c in kernel.constants}
    return dims if holds(kernel, constants, dims) else dict(task.shapes["small"])


def prepare(out: Path, count: int, seed: int) -> None:
    """Write artefacts of sampled mutants and of the kernels themselves, and what the verifier says."""
    from cake.mutate import OPERATORS, Truth, derive, judge, subject

    registry = load(ROOT)
    chosen: list[dict[str, Any]] = []
    found = subjects(registry)
    each = -(-count // len(found))
    for name, (kernel, task) in found.items():
        dims = shape_of(kernel, task)
        constants = {c.name: 2 for c in kernel.constants if c.name == "SMS"}
        _written(out, registry, name, kernel, task, dims, constants)
        chosen.append({"id": name, "kernel": name, "codes": [], "stage": "", "control": True})
        mutants = derive(subject(kernel, registry), OPERATORS)
        truth = Truth(kernel, registry, task, thorough=False)
        Random(seed).shuffle(mutants)
        kept: dict[str, int] = {}
        for mutant in mutants:
            if sum(kept.values()) >= each:
                break
            if kept.get(mutant.operator, 0) >= 2:
                continue
            ident = f"{name}-{len(chosen)}"
            try:
                _written(out, registry, ident, mutant.kernel, task, dims, constants)
            except KernelErrors:
                continue  # refused before there is anything to run
            kept[mutant.operator] = kept.get(mutant.operator, 0) + 1
            outcome = judge(mutant, truth, registry)
            chosen.append(
                {
                    "id": ident,
                    "kernel": name,
                    "operator": mutant.operator,
                    "description": mutant.description,
                    "line": mutant.span.line,
                    "codes": list(outcome.codes),
                    "stage": outcome.stage,
                    "milliseconds": 1e3 * outcome.seconds,
                    "control": False,
                }
            )
            sys.stderr.write(f"{ident} {mutant.operator} {outcome.stage} {outcome.codes[:1]}\n")
    document = {"schema": 1, "seed": seed, "mutants": chosen}
    (out / "mutants.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _written(
    out: Path,
    registry: Registry,
    ident: str,
    kernel: Kernel,
    task: Task,
    dims: Mapping[str, int],
    constants: Mapping[str, int],
) -> None:
    instance = instantiate(kernel, dims, constants, primitives=registry.primitives, arch=ARCH)
    generated = generate(instance)
    compiled = compile_source(generated.source, ARCH, path=ident)
    resources = {"registers": compiled.registers}
    artefact = Artefact(
        ident,
        content_hash(kernel),
        dims,
        constants,
        generated.plan,
        generated.source,
        compiled.cubin,
        resources,
        task.name(),
    )
    artefact.write(out / ident)


# --- run --------------------------------------------------------------------------------------------------


def one(folder: Path, compare: bool) -> int:
    """Launch one artefact in this process. Exit status 0 right, 1 wrong or unstable, 3 a fault."""
    from cake.device.compare import compare as compared
    from cake.device.driver import DeviceFault, open_gpu
    from cake.device.launch import run
    from cake.device.trial import pose

    artefact = read(folder)
    task = load(ROOT).tasks[artefact.task]
    problem = pose(task, artefact.dims, 3)
    try:
        gpu = open_gpu(0)
        outcome = run(gpu, artefact.cubin, artefact.plan, dict(problem.inputs))
        if not compare:
            return 0
        again = run(gpu, artefact.cubin, artefact.plan, dict(problem.inputs))
    except DeviceFault as fault:
        sys.stdout.write(f"{fault.code}\n")
        return 3
    right = not outcome.findings
    for name, want in problem.expected.items():
        absolute, relative = problem.tolerances[name]
        right &= compared(outcome.outputs[name], want, absolute, relative).ok
        right &= outcome.outputs[name].tobytes() == again.outputs[name].tobytes()
    return 0 if right else 1


def timed(command: Sequence[str], limit: float) -> tuple[int | None, str, float]:
    """Exit status (None past the deadline), what it said, and seconds."""
    began = perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return None, "", perf_counter() - began
    return done.returncode, done.stdout[-400:] + done.stderr[-200:], perf_counter() - began


def alone(folder: Path) -> dict[str, Any]:
    """The launch by itself: right, wrong, a fault, or no end."""
    status, said, seconds = timed([*_script(folder), "--compare"], ALONE_S)
    words = {0: "right", 1: "wrong", 3: "fault", None: "hangs"}
    return {"said": words.get(status, "broken"), "seconds": seconds, "text": said.strip()[-200:]}


def under(tool: str, folder: Path) -> dict[str, Any]:
    """The launch under a tool of compute-sanitizer."""
    options = ["--tool", tool, "--error-exitcode", str(CAUGHT)]
    status, said, seconds = timed(["compute-sanitizer", *options, *_script(folder)], TOOL_S)
    caught = status == CAUGHT or (" ERROR SUMMARY: 0 errors" not in said and status not in (0, None))
    word = "hangs" if status is None else "caught" if caught else "silent"
    return {"said": word, "seconds": seconds, "text": said.strip()[-200:]}


def _script(folder: Path) -> list[str]:
    return [sys.executable, "-m", "bench.sanitizer", "one", str(folder)]


def run_all(source: Path, out: Path, processes: int) -> None:
    """First each artefact alone, few at once, for a kernel that never ends slows those beside it; then under
    the tools, those that hang last. Results are written anew after each, so that a cut run keeps them."""
    document = json.loads((source / "mutants.json").read_text(encoding="utf-8"))
    out.mkdir(parents=True, exist_ok=True)

    def keep(mutant: dict[str, Any], name: str, result: dict[str, Any]) -> None:
        mutant.setdefault("device", {})[name] = result
        (out / "sanitizer.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{mutant['id']} {mutant['codes'][:1]} {name} {result['said']}\n")
        sys.stdout.flush()

    mutants = document["mutants"]
    with ThreadPoolExecutor(FEW) as pool:
        for mutant, result in zip(mutants, pool.map(lambda m: alone(source / m["id"]), mutants), strict=True):
            keep(mutant, "alone", result)
    for hanging, most in ((False, processes), (True, FEW)):
        part = [m for m in mutants if (m["device"]["alone"]["said"] == "hangs") is hanging]
        jobs = [(m, tool) for m in part for tool in TOOLS]
        with ThreadPoolExecutor(most) as pool:
            results = pool.map(lambda job: under(job[1], source / job[0]["id"]), jobs)
            for (mutant, tool), result in zip(jobs, results, strict=True):
                keep(mutant, tool, result)


# --- report -----------------------------------------------------------------------------------------------


def report(path: Path) -> str:
    """What each catches, and how long it takes, in Markdown."""
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = [m for m in document["mutants"] if len(m.get("device", {})) == 1 + len(TOOLS)]
    mutants = [m for m in rows if not m["control"]]
    controls = [m for m in rows if m["control"]]
    harm = [m for m in mutants if m["stage"] or any(_catches(m, name) for name in ("alone", *TOOLS))]
    lines = [
        f"{len(mutants)} mutants of {len(controls)} kernels; {len(harm)} caught by somebody",
        "",
        "| who | caught | of the others' | false alarms | seconds a mutant, median (90th percentile) |",
        "| --- | --- | --- | --- | --- |",
    ]
    names = ["cake check", "values on the machine", "wrong answer", *TOOLS, "all of the GPU's"]
    for name in names:
        caught = [m for m in mutants if _by(m, name)]
        only = [m for m in harm if not _by(m, name)]
        alarms = sum(_by(m, name) for m in controls)
        if name == "values on the machine":
            lines.append(f"| {name}, where that is silent | {len(caught)} | | | |")
            continue
        seconds = sorted(_seconds(m, name) for m in mutants)
        high = seconds[int(0.9 * (len(seconds) - 1))]
        lines.append(
            f"| {name} | {len(caught)} | misses {len(only)} | {alarms} | {median(seconds):.3g} ({high:.3g}) |"
        )
    missed = [m for m in harm if not m["stage"]]
    lines += ["", "Caught on the GPU and neither by `cake check` nor by values on the machine:", ""]
    lines += [f"- {m['kernel']} line {m['line']}: {m['operator']}, {m['description']}" for m in missed] or [
        "- none"
    ]
    return "\n".join(lines)


def _catches(mutant: Mapping[str, Any], name: str) -> bool:
    said = mutant["device"][name]["said"]
    return said not in ("right", "silent") if name == "alone" else said == "caught"


def _by(mutant: Mapping[str, Any], name: str) -> bool:
    if name == "cake check":
        return bool(mutant["codes"])
    if name == "values on the machine":
        return mutant.get("stage") == "values"
    if name == "all of the GPU's":
        return any(_catches(mutant, one) for one in ("alone", *TOOLS))
    return _catches(mutant, "alone" if name == "wrong answer" else name)


def _seconds(mutant: Mapping[str, Any], name: str) -> float:
    if name == "cake check":
        return float(mutant["milliseconds"]) / 1e3
    if name == "all of the GPU's":
        return sum(float(result["seconds"]) for result in mutant["device"].values())
    return float(mutant["device"]["alone" if name == "wrong answer" else name]["seconds"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sanitizer", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("prepare")
    first.add_argument("out", type=Path)
    first.add_argument("--count", type=int, default=72)
    first.add_argument("--seed", type=int, default=0)
    second = commands.add_parser("run")
    second.add_argument("source", type=Path)
    second.add_argument("--out", type=Path, required=True)
    second.add_argument("--processes", type=int, default=12)
    third = commands.add_parser("one")
    third.add_argument("folder", type=Path)
    third.add_argument("--compare", action="store_true")
    fourth = commands.add_parser("report")
    fourth.add_argument("results", type=Path)
    asked = parser.parse_args()
    match asked.command:
        case "prepare":
            prepare(asked.out, asked.count, asked.seed)
        case "run":
            run_all(asked.source, asked.out, asked.processes)
        case "one":
            return one(asked.folder, asked.compare)
        case _:
            sys.stdout.write(report(asked.results) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
