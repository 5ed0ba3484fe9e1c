"""The supervisor: a candidate may hang, crash or babble; the session goes on with a fresh worker."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from cake.errors import BrokenPlugin, CakeError, ExitCode
from cake.evaluate.evaluator import Target
from cake.evaluate.supervisor import Supervisor
from cake.evaluate.verdict import Step, Timing, Verdict, beats

TARGET = Target("sum", {"N": 8}, "sm_80", "Toy", "machine", 0)

WORKER = """
import json, os, signal, sys
order = json.loads(sys.stdin.readline())
if START == "refuse":
    print(json.dumps({"error": "no GPU here", "exit_code": 3})); sys.exit()
if START == "die":
    sys.exit("cannot import it")
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    text = json.loads(line)["text"]
    print(json.dumps({"entering": "machine"}), flush=True)
    if text == "hang":
        signal.pause()
    if text == "crash":
        print("assertion in the engine", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if text == "exit":
        sys.exit(7)
    verdict = {"ok": True, "stage": "time", "steps": [], "diagnostics": [], "symptoms": [], "unchecked": [],
               "predicted": None, "measured": None, "message": str(os.getpid())}
    print(json.dumps({"verdict": verdict}), flush=True)
"""


def supervisor(start: str = "well", deadline: float = 30.0) -> Supervisor:
    program = f"START = {start!r}\n{WORKER}"
    return Supervisor(Path("."), TARGET, deadline, (sys.executable, "-c", program))


def test_one_worker_serves_all_candidates_that_behave() -> None:
    judge = supervisor()
    first, second = judge.evaluate("a", None), judge.evaluate("b", 1.0)
    judge.close()
    assert first.ok
    assert first.message == second.message
    with pytest.raises(ProcessLookupError):
        os.kill(int(first.message), 0)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("hang", "ladder/deadline", "not judged within 0.5 s"),
        ("crash", "ladder/crashed", "signal SIGSEGV: assertion in the engine"),
        ("exit", "ladder/crashed", "exit status 7"),
    ],
)
def test_a_candidate_that_kills_its_judge_is_judged_so(text: str, code: str, words: str) -> None:
    judge = supervisor(deadline=0.5)
    before = judge.evaluate("a", None)
    verdict = judge.evaluate(text, None)
    after = judge.evaluate("b", None)
    judge.close()
    assert (verdict.ok, verdict.stage, verdict.code) == (False, "machine", code)
    assert words in verdict.message
    assert verdict.seconds > 0
    assert after.ok
    assert after.message != before.message


def test_a_worker_that_refuses_to_start_says_why() -> None:
    judge = supervisor("refuse")
    with pytest.raises(CakeError, match="no GPU here") as caught:
        judge.ready()
    judge.close()
    assert caught.value.exit_code is ExitCode.ENVIRONMENT


def test_a_worker_that_cannot_start_is_a_fault_of_the_workspace() -> None:
    with pytest.raises(BrokenPlugin, match="cannot start: exit status 1: cannot import it"):
        supervisor("die").ready()


def test_verdicts_travel_as_json() -> None:
    timing = Timing(2e-3, 1e-3, 3e-3, "H200", {"bound": "memory"})
    verdict = Verdict(
        True,
        "timing",
        (Step("parse", 0.1), Step("timing", 0.2)),
        diagnostics=({"code": "perf/x"},),
        symptoms=("tail_wave",),
        predicted=timing,
        resources={"registers": 64},
        measured=timing,
    )
    assert Verdict.from_json(json.loads(json.dumps(verdict.as_json()))) == verdict


def test_a_measurement_must_clear_the_noise() -> None:
    def measured(low: float, high: float) -> Timing:
        return Timing((low + high) / 2, low, high, "H200", {"samples": 20})

    assert beats(measured(0.8, 0.9), measured(0.95, 1.05))
    assert not beats(measured(0.8, 0.97), measured(0.95, 1.05))


def test_a_prediction_must_gain_more_than_nothing() -> None:
    def predicted(seconds: float) -> Timing:
        return Timing(seconds, seconds / 2, seconds * 2, "H200")

    assert beats(predicted(0.99), predicted(1.0))
    assert not beats(predicted(0.9999), predicted(1.0))
    assert not beats(predicted(1.0), predicted(1.0))
