"""What the worker can be asked, each a function of an opened GPU and plain JSON.

Arrays travel as `.npy` files (see `arrays`), cubins as files. Answers are plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cake.codegen.plan import LaunchPlan
from cake.device.arrays import Array, load, save
from cake.device.compare import compare
from cake.device.driver import DeviceFault, Gpu, call, driver
from cake.device.launch import LoadedKernel, run
from cake.device.memory import Tensors
from cake.device.probe import probe
from cake.device.timing import Arm, KernelArm, copies_needed, copy_bandwidth, measure

if TYPE_CHECKING:
    from cake.device.peers import TorchArm

Job = Callable[[Gpu, Mapping[str, Any]], dict[str, Any]]


def probe_job(gpu: Gpu, order: Mapping[str, Any]) -> dict[str, Any]:
    """{} -> the device's facts (`probe.DeviceInfo`)."""
    return probe(gpu).as_json()


def run_job(gpu: Gpu, order: Mapping[str, Any]) -> dict[str, Any]:
    """{"cubin", "plan", "inputs": {name: path}, "outputs": folder} -> {"outputs": {name: path}, "findings"}.

    The inputs' and outputs' element types are those of the plan.
    """
    plan = LaunchPlan.from_json(order["plan"])
    outcome = run(gpu, Path(order["cubin"]).read_bytes(), plan, _inputs(plan, order))
    paths = {}
    for name, array in outcome.outputs.items():
        paths[name] = str(Path(order["outputs"]) / f"{name}.npy")
        save(Path(paths[name]), array)
    return {"outputs": paths, "findings": [finding.as_json() for finding in outcome.findings]}


def check_job(gpu: Gpu, order: Mapping[str, Any]) -> dict[str, Any]:
    """The order of `run_job` without "outputs", and "expected": {name: path of a float64 array},
    "tolerances": {name: [absolute, relative]}, optionally "rows": path of the row numbers that "expected"
    holds, and "repeats": launches that must agree bit for bit.

    -> {"ok", "outputs": {name: Comparison}, "findings", "repeats"}
    """
    plan = LaunchPlan.from_json(order["plan"])
    cubin, inputs = Path(order["cubin"]).read_bytes(), _inputs(plan, order)
    repeats = int(order.get("repeats", 1))
    outcome = run(gpu, cubin, plan, inputs)
    findings = [finding.as_json() for finding in outcome.findings]
    for _ in range(repeats - 1):
        again = run(gpu, cubin, plan, inputs)
        for name, array in again.outputs.items():
            if array.tobytes() != outcome.outputs[name].tobytes():
                message = f"{name} changes from run to run on the same inputs: a race"
                findings.append({"code": "device/unstable", "tensor": name, "message": message})
        if len(findings) > len(outcome.findings):
            break
    compared = _compare(outcome.outputs, order)
    ok = not findings and all(c["ok"] for c in compared.values())
    return {"ok": ok, "outputs": compared, "findings": findings, "repeats": repeats}


def time_job(gpu: Gpu, order: Mapping[str, Any]) -> dict[str, Any]:
    """{"arms": [{"name", "cubin", "plan"} or {"name": "torch", "task"}], "inputs", "rounds", "l2"}, and with
    "expected" and "tolerances" the outputs that were timed are compared afterwards.

    -> `timing.Measurement` as JSON, "device", and "checked": {arm: {output: Comparison}}; a kernel whose
    outputs are wrong after timing is named in "wrong".
    """
    info = probe(gpu)
    kernels = [arm for arm in order["arms"] if "plan" in arm]
    plans = {arm["name"]: LaunchPlan.from_json(arm["plan"]) for arm in kernels}
    first = plans[kernels[0]["name"]]
    inputs = _inputs(first, order)
    free, _ = call(driver().cuMemGetInfo)
    with ExitStack() as stack:
        l2, outputs = order.get("l2", "cold"), {}
        arms: list[Arm] = []
        each = sum(array.nbytes for array in inputs.values()) + _output_bytes(first)
        copies = copies_needed(each, info.l2_bytes, free // len(order["arms"]), l2)
        for arm in order["arms"]:
            if "plan" not in arm:
                peer = _torch_arm(arm, inputs, copies, gpu)
                arms.append(peer)
                outputs[arm["name"]] = peer.outputs
                continue
            plan = plans[arm["name"]]
            kernel = stack.enter_context(LoadedKernel(gpu, Path(arm["cubin"]).read_bytes(), plan))
            tensors = [stack.enter_context(Tensors(plan)) for _ in range(copies)]
            for one in tensors:
                one.fill(inputs)
            outputs[arm["name"]] = tensors[-1].outputs
            arms.append(KernelArm(arm["name"], kernel, [kernel.bind(t.addresses) for t in tensors]))
        measured = measure(arms, rounds=int(order.get("rounds", 20)), l2=l2, copies=copies)
        return {**measured.as_json(), "device": info.as_json(), **_recheck(outputs, plans, order)}


def copy_bandwidth_job(gpu: Gpu, order: Mapping[str, Any]) -> dict[str, Any]:
    """{} -> {"bytes_per_second"}: the practical ceiling of memory traffic."""
    return {"bytes_per_second": copy_bandwidth()}


JOBS: dict[str, Job] = {
    "probe": probe_job,
    "run": run_job,
    "check": check_job,
    "time": time_job,
    "copy_bandwidth": copy_bandwidth_job,
}


def _inputs(plan: LaunchPlan, order: Mapping[str, Any]) -> dict[str, Array]:
    return {
        name: load(Path(order["inputs"][name]), spec.dtype)
        for name, spec in plan.tensors.items()
        if spec.access == "in"
    }


def _output_bytes(plan: LaunchPlan) -> int:
    from cake.ir.types import DType

    total = 0
    for spec in plan.tensors.values():
        if spec.access == "out":
            size = DType(spec.dtype).bytes
            for axis in spec.shape:
                size *= axis
            total += size
    return total


def _torch_arm(arm: Mapping[str, Any], inputs: Mapping[str, Array], copies: int, gpu: Gpu) -> TorchArm:
    from cake.device.peers import TorchArm, available

    if not available(arm["task"]):
        raise DeviceFault("device/torch", f"torch is not here, or has no operator for {arm['task']}")
    return TorchArm(arm["task"], inputs, copies, gpu.index)


def _compare(outputs: Mapping[str, Array], order: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    rows = np.load(order["rows"], allow_pickle=False) if order.get("rows") else None
    compared = {}
    for name, path in order["expected"].items():
        absolute, relative = order["tolerances"][name]
        got = outputs[name] if rows is None else outputs[name][rows]
        want = np.load(path, allow_pickle=False)
        compared[name] = compare(got, want, absolute, relative).as_json()
    return compared


def _recheck(
    outputs: Mapping[str, Callable[[], dict[str, Array]]],
    kernels: Collection[str],
    order: Mapping[str, Any],
) -> dict[str, Any]:
    """The outputs after timing: a kernel that is right once and wrong under load is wrong."""
    if "expected" not in order:
        return {"checked": {}, "wrong": []}
    checked = {name: _compare(read(), order) for name, read in outputs.items()}
    wrong = [name for name in kernels if not all(c["ok"] for c in checked[name].values())]
    return {"checked": checked, "wrong": wrong}
