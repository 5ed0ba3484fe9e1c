"""`cake mutate`: which small harmful changes of a kernel are reported without a GPU."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cake.errors import CakeError, ExitCode

if TYPE_CHECKING:
    from cake.ir import Kernel
    from cake.mutate import Operator, Outcome
    from cake.plugins import Registry


def mutate(
    file: Annotated[Path, typer.Argument(help="A kernel file without errors; `-` reads standard input.")],
    operator: Annotated[
        list[str] | None, typer.Option(help="Only this way to change a kernel; may be repeated.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="At most so many mutants, drawn from the operators in turn.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="What the sample is drawn by.")] = 0,
    dim: Annotated[
        list[str] | None, typer.Option(help="A dimension, as M=128; without, small covering shapes.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document with every mutant.")] = False,
) -> None:
    """Change a kernel in small ways that do harm, and count which of them the check reports.

    A mutant is killed where a report or wrong values give it away, equivalent where no execution differs from
    the kernel's, and has survived where it does harm and nothing reports it. Exit status 1 when any survived.
    """
    from cake.cli.console import parse_dims, print_json, read_text, workspace_plugins
    from cake.ir import parse
    from cake.mutate import tally

    dims = parse_dims(dim or ()) or None
    text = read_text(file)
    operators = _chosen(operator or ())
    registry = workspace_plugins()
    kernel = parse(text, str(file))
    _need_clean(kernel, registry, dims)
    outcomes = _judged(kernel, registry, operators, sample, seed, dims)
    counts = tally(outcomes)
    survivors = [o for o in outcomes if o.verdict == "survived"]
    if json:
        document: dict[str, Any] = {"schema": 1, "file": str(file), "kernel": kernel.name}
        document["operators"] = {
            name: {"killed": c.killed, "equivalent": c.equivalent, "survived": c.survived}
            for name, c in counts.items()
        }
        print_json({**document, "mutants": [outcome.as_json() for outcome in outcomes]})
    else:
        _show(outcomes, survivors)
    if survivors:
        raise typer.Exit(ExitCode.REFUSED)


def _chosen(names: Sequence[str]) -> list[Operator]:
    from cake.mutate import OPERATORS

    known = {operator.name: operator for operator in OPERATORS}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise CakeError(f"--operator {name[:40]}: no such operator; {hint}")
    return [operator for name, operator in known.items() if not names or name in names]


def _need_clean(kernel: Kernel, registry: Registry, dims: dict[str, int] | None) -> None:
    """A kernel with errors tells nothing: every mutant of it would be reported."""
    from cake.diagnostics import KernelErrors
    from cake.verify import check

    report = check(kernel, registry, dims=dims)
    if not report.ok:
        raise KernelErrors(report.diagnostics, kernel.source)


def _judged(
    kernel: Kernel,
    registry: Registry,
    operators: Sequence[Operator],
    sample: int | None,
    seed: int,
    dims: dict[str, int] | None,
) -> list[Outcome]:
    from cake.mutate import Truth, derive, judge, subject, task_of

    parent = subject(kernel, registry, dims)
    truth = Truth(parent.kernel, registry, task_of(registry, kernel), dims=dims)
    mutants = derive(parent, operators, sample, seed)
    with _progress(len(mutants)) as advance:
        outcomes = []
        for mutant in mutants:
            outcomes.append(judge(mutant, truth, registry))
            advance()
    return outcomes


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """A bar on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("mutants", total=total)
        yield lambda: bar.advance(task)


def _show(outcomes: Sequence[Outcome], survivors: Sequence[Outcome]) -> None:
    """Counts by operator, then each survivor with its difference, then the sums."""
    from cake.cli.console import print_table
    from cake.mutate import STAGES, Count, tally

    counts = tally(outcomes)
    rows = [(name, c.killed, c.equivalent, c.survived) for name, c in counts.items()]
    print_table(("operator", "killed", "equivalent", "survived"), rows)
    for outcome in survivors:
        mutant = outcome.mutant
        print(f"\nsurvived: {mutant.operator}, line {mutant.span.line}: {mutant.description}")
        print(f"  {outcome.reason}")
        print("\n".join(f"  {line}" for line in mutant.difference.split("\n")))
    total = Count()
    for outcome in outcomes:
        total.add(outcome.verdict)
    stages = {stage: sum(o.stage == stage for o in outcomes) for stage in STAGES}
    print("\nkilled by " + ", ".join(f"{stage}: {number}" for stage, number in stages.items()))
    print(f"killed={total.killed}/{total.harmful} equivalent={total.equivalent} survived={total.survived}")
