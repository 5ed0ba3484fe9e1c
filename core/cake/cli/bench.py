"""`cake bench`: a kernel's time on this host's GPU, beside torch or another kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cake.cli.build import Wish
from cake.cli.console import parse_constants, parse_dims, print_json, print_table, workspace_plugins
from cake.cli.run import judging, obtain
from cake.errors import CakeError, ExitCode, MissingEnvironment
from cake.plugins import Registry

if TYPE_CHECKING:
    from cake.device.artefact import Artefact

_COLUMNS = ("arm", "median", "quartiles", "TFLOP/s", "GB/s", "of floor")


def bench(
    file: Annotated[Path | None, typer.Argument(help="A kernel file.")] = None,
    prebuilt: Annotated[
        Path | None, typer.Option(help="Time what `cake build --out` wrote into this folder instead.")
    ] = None,
    vs: Annotated[str, typer.Option(help="`torch`, another kernel file, or a prebuilt folder.")] = "",
    task: Annotated[str, typer.Option(help="The task to judge by (found by the kernel's tensors).")] = "",
    shape: Annotated[str, typer.Option(help="A named shape of the task (its first).")] = "",
    dim: Annotated[list[str] | None, typer.Option(help="A dimension, as M=4096.")] = None,
    constant: Annotated[list[str] | None, typer.Option(help="A constant over its default, as BM=64.")] = None,
    rounds: Annotated[int, typer.Option(min=5, max=1000, help="Rounds of bursts, A B B A each.")] = 20,
    l2: Annotated[
        Literal["cold", "warm"], typer.Option(help="cold: inputs rotate over more than the L2 holds.")
    ] = "cold",
    seed: Annotated[int, typer.Option(min=0, help="Fixes the random inputs.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Time a kernel on this host's GPU, beside torch or another kernel.

    Prints medians, quartiles, rates, and the ratio with its interval. The kernel is checked against its
    oracle first, and its timed outputs again afterwards. Exit status: 0 timed, 1 wrong results or a time
    that the hardware cannot reach, 3 no GPU or no torch.
    """
    from cake.device.client import DeviceClient
    from cake.device.trial import bench as measure
    from cake.device.trial import check, limit, pose

    registry = workspace_plugins()
    wish = Wish(task, shape, parse_dims(dim or ()), parse_constants(constant or ()))
    with DeviceClient() as client:
        info = client.probe()
        artefact = obtain(registry, info.arch, file, prebuilt, wish)
        judge = judging(registry, artefact, task)
        arms = [(artefact.name, artefact)]
        if vs == "torch":
            _need_torch(judge.name())
        elif vs:
            arms.append(_other(registry, info.arch, Path(vs), artefact))
        problem = pose(judge, artefact.dims, seed)
        for name, one in arms:
            if not (said := check(client, one, problem))["ok"]:
                _refuse(name, said, json)
        result = measure(
            client,
            arms,
            judge,
            problem,
            torch=vs == "torch",
            rounds=rounds,
            l2=l2,
            floor=limit(registry, info, judge, artefact.dims, client.copy_bandwidth()),
        )
    result = {"kernel": artefact.name, "task": judge.name(), "dims": dict(artefact.dims), **result}
    if json:
        print_json({"schema": 1, "ok": not result["wrong"] + result["below_floor"], **result})
    else:
        _show(result)
    if result["wrong"] or result["below_floor"]:
        raise typer.Exit(ExitCode.REFUSED)


def _other(registry: Registry, arch: str, path: Path, first: Artefact) -> tuple[str, Artefact]:
    """The kernel to compare with, at the same dims, under a name of its own."""
    if path.is_dir():
        other = obtain(registry, arch, None, path, Wish())
    else:
        other = obtain(registry, arch, path, None, Wish(task=first.task, dims=first.dims))
    if dict(other.dims) != dict(first.dims):
        raise CakeError(f"{path} is built for {dict(other.dims)}, not for {dict(first.dims)}")
    return other.name if other.name != first.name else str(path), other


def _need_torch(task: str) -> None:
    from importlib.util import find_spec

    from cake.device.peers import OUTPUTS

    if find_spec("torch") is None:
        raise MissingEnvironment("--vs torch: torch is not installed here")
    if task not in OUTPUTS:
        raise CakeError(
            f"--vs torch: no operator of torch is known for task {task}; for {', '.join(OUTPUTS)}"
        )


def _refuse(name: str, said: dict[str, Any], json: bool) -> None:
    """A wrong kernel is not timed."""
    if json:
        print_json({"schema": 1, "ok": False, "wrong": [name], "check": said})
    else:
        words = [finding["message"] for finding in said["findings"]]
        wrong = [(output, c) for output, c in said["outputs"].items() if not c["ok"]]
        words += [f"{output}: {c['mismatched']} of {c['elements']} wrong" for output, c in wrong]
        print(f"{name} is wrong, not timed: {'; '.join(words)}")
    raise typer.Exit(ExitCode.REFUSED)


def _show(result: dict[str, Any]) -> None:
    device, floor = result["device"], result["floor"]["seconds"]
    dims = " ".join(f"{name}={value}" for name, value in result["dims"].items())
    print(f"{result['kernel']} {dims} on {device['name']} ({device['arch']}), {result['l2']} L2")
    rows = []
    for name, arm in result["arms"].items():
        quartiles = f"{arm['low'] * 1e6:.2f} to {arm['high'] * 1e6:.2f} us"
        rates = (f"{arm['tflops']:.1f}", f"{arm['gbps']:.0f}")
        rows.append(
            (name, f"{arm['median'] * 1e6:.2f} us", quartiles, *rates, f"{floor / arm['median']:.0%}")
        )
    print_table(_COLUMNS, rows)
    print(f"floor: {floor * 1e6:.2f} us, from {result['floor']['source']}")
    first = next(iter(result["arms"]))
    for name, ratio in result["ratios"].items():
        interval = f"[{ratio['low']:.3f}, {ratio['high']:.3f}] in 95 % of resamples"
        print(f"{first} takes 1/{ratio['ratio']:.3f} of the time of {name}, {interval}")
    for name in result["wrong"]:
        print(f"{name} gives wrong results after timing")
    for name in result["below_floor"]:
        print(f"{name} is faster than the hardware can be: it does not do the work")
