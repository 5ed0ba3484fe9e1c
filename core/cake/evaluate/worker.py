"""The child process that judges candidates: JSON lines in, JSON lines out.

    in   {"root": ..., "target": {...}, "deadline": seconds}       once
    out  {"ready": true} or {"error": words, "exit_code": number}
    in   {"text": ..., "beat": seconds or null}                    then per candidate
    out  {"entering": stage} ..., then {"verdict": {...}} or {"error": ...}

Run as `python -m cake.evaluate.worker` by `supervisor`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, TextIO

from cake.errors import CakeError
from cake.evaluate.evaluator import Target

GRACE_S = 5.0
"""The supervisor kills at the deadline; a worker whose supervisor is gone ends itself so much later."""

_MEMORY_BYTES = 32 << 30
"""Address space of a worker without GPU: a candidate that asks for more fails alone."""


def main() -> None:
    """Serve until the supervisor closes the pipe."""
    requests, answers = sys.stdin, _own_stdout()
    order = json.loads(requests.readline())
    target = Target(**order["target"])
    try:
        from cake.evaluate.ladder import Ladder
        from cake.plugins import load

        ladder = Ladder(load(Path(order["root"])), target)
    except CakeError as error:
        _say(answers, {"error": str(error), "exit_code": int(error.exit_code)})
        return
    if target.backend == "machine":
        _limit_memory()
    _say(answers, {"ready": True})
    for line in requests:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, order["deadline"] + GRACE_S)
        try:
            verdict = ladder.climb(
                request["text"], request["beat"], lambda stage: _say(answers, {"entering": stage})
            )
            answer: dict[str, Any] = {"verdict": verdict.as_json()}
        except CakeError as error:
            answer = {"error": str(error), "exit_code": int(error.exit_code)}
        signal.setitimer(signal.ITIMER_REAL, 0)
        _say(answers, answer)


def _own_stdout() -> TextIO:
    """Keep standard output for answers: what a plugin prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _limit_memory() -> None:
    import resource

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = _MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


if __name__ == "__main__":
    main()
