"""The worker's protocol and its client: answers, faults, deaths and deadlines. No GPU is needed: the worker
is real where it says that there is none, and a stand-in where it must crash."""

from __future__ import annotations

import io
import json
import sys
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cake.codegen.plan import LaunchPlan, PointerParam, TensorSpec
from cake.device import worker
from cake.device.client import DeviceClient
from cake.device.driver import DeviceFault, Gpu, open_gpu
from cake.errors import ExitCode, MissingEnvironment

BF16 = np.dtype(ml_dtypes.bfloat16)
PLAN = LaunchPlan(
    "kernel",
    "sm_90a",
    (1, 1, 1),
    (32, 1, 1),
    (1, 1, 1),
    0,
    (PointerParam("x"), PointerParam("z")),
    {"x": TensorSpec("bf16", (4, 8), "in"), "z": TensorSpec("bf16", (4, 8), "out")},
)


def no_gpu() -> bool:
    try:
        open_gpu()
    except MissingEnvironment:
        return True
    return False


@pytest.mark.skipif(not no_gpu(), reason="this host has a GPU")
def test_without_a_gpu_the_message_says_so_and_the_exit_status_is_3() -> None:
    with DeviceClient() as client, pytest.raises(MissingEnvironment, match="no CUDA driver/GPU") as missing:
        client.probe()
    assert missing.value.exit_code == ExitCode.ENVIRONMENT
    assert "\n" not in str(missing.value)


def served(monkeypatch: pytest.MonkeyPatch, jobs: dict[str, worker.Job], *lines: str) -> list[dict[str, Any]]:
    """What the worker answers to these lines with these jobs, on a GPU that only has a name."""
    monkeypatch.setattr(worker, "open_gpu", lambda index: Gpu(index, None, None, "sm_90a"))
    answers = io.StringIO()
    worker.serve(io.StringIO("\n".join(lines)), answers, 0, jobs)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def faulty(*, sticky: bool) -> worker.Job:
    def job(gpu: Gpu, order: Any) -> dict[str, Any]:
        raise DeviceFault("device/illegal-address", "boom", sticky=sticky)

    return job


def test_each_line_gets_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: dict[str, worker.Job] = {
        "probe": lambda gpu, order: {"arch": gpu.arch},
        "bad": faulty(sticky=False),
    }
    lines = ('{"job": "probe"}', '{"job": "bad"}', '{"job": "unknown"}', "no json", '{"job": "probe"}')
    first, fault, unknown, garbage, again = served(monkeypatch, jobs, *lines)
    assert first == again == {"result": {"arch": "sm_90a"}}
    assert fault["error"]["code"] == "device/illegal-address"
    assert fault["error"]["exit_code"] == ExitCode.REFUSED
    assert unknown["error"]["code"] == garbage["error"]["code"] == "device/order"


def test_a_lost_context_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ('{"job": "bad"}', '{"job": "bad"}')
    (only,) = served(monkeypatch, {"bad": faulty(sticky=True)}, *lines)
    assert only["error"]["ends"]


STAND_IN = """
import json, os, signal, sys, time
for line in sys.stdin:
    order = json.loads(line)
    if order["job"] == "hang":
        time.sleep(60)
    if order["job"] == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if order["job"] == "garbage":
        print("warning: not an answer", flush=True)
    if order["job"] == "refuse":
        error = {"code": "device/invalid-value", "message": "no", "exit_code": 1, "ends": False}
        print(json.dumps({"error": error}), flush=True)
    if order["job"] == "missing":
        error = {"code": "x", "message": "no GPU", "exit_code": 3, "ends": False}
        print(json.dumps({"error": error}), flush=True)
    if order["job"] == "run":
        import numpy as np
        x = np.load(order["inputs"]["x"])
        path = os.path.join(order["outputs"], "z.npy")
        np.save(path, x)
        print(json.dumps({"result": {"outputs": {"z": path}, "findings": []}}), flush=True)
    print(json.dumps({"result": {"pid": os.getpid()}}), flush=True)
"""


@pytest.fixture
def stand_in() -> DeviceClient:
    return DeviceClient(command=(sys.executable, "-c", STAND_IN))


@pytest.mark.parametrize(
    ("job", "code", "words"),
    [
        ("segfault", "device/crashed", "SIGSEGV"),
        ("garbage", "device/crashed", "died"),
        ("hang", "device/deadline", "killed"),
    ],
)
def test_a_worker_that_dies_or_hangs_is_a_fault_and_is_replaced(
    stand_in: DeviceClient, job: str, code: str, words: str
) -> None:
    with stand_in as client:
        before = client.ask({"job": "echo"}, 20.0)["pid"]
        began = time.monotonic()
        with pytest.raises(DeviceFault, match=words) as fault:
            client.ask({"job": job}, 1.0)
        assert fault.value.code == code
        assert time.monotonic() - began < 10
        assert client.ask({"job": "echo"}, 20.0)["pid"] != before


def test_errors_keep_their_kind(stand_in: DeviceClient) -> None:
    with stand_in as client, pytest.raises(DeviceFault) as fault:
        client.ask({"job": "refuse"}, 20.0)
    assert fault.value.code == "device/invalid-value"
    with stand_in as client, pytest.raises(MissingEnvironment, match="no GPU"):
        client.ask({"job": "missing"}, 20.0)


def test_arrays_reach_the_worker_and_come_back_in_their_dtype(stand_in: DeviceClient) -> None:
    x = np.arange(32).reshape(4, 8).astype(BF16)
    with stand_in as client:
        outputs, findings = client.run(b"\x7fELF", PLAN, {"x": x})
    assert findings == []
    assert outputs["z"].dtype == BF16
    np.testing.assert_array_equal(outputs["z"].astype(np.float32), x.astype(np.float32))
