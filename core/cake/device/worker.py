"""The child process that owns the GPU: JSON lines in, JSON lines out.

    in   {"job": "probe" | "run" | "check" | "time" | "copy_bandwidth", ...}
    out  {"result": {...}} or {"error": {"code", "message", "exit_code", "ends"}}

Run as `python -m cake.device.worker` by `client`. It imports the compiler half alone. After an error that
costs the CUDA context it answers and ends; the client starts another.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from cake.device.driver import DeviceFault, Gpu, open_gpu
from cake.device.jobs import JOBS, Job
from cake.errors import CakeError, ExitCode


def main() -> None:
    """Serve until the client closes the pipe."""
    answers = _own_stdout()
    serve(sys.stdin, answers, int(os.environ.get("CAKE_GPU", "0")))


def serve(requests: TextIO, answers: TextIO, index: int, jobs: Mapping[str, Job] = JOBS) -> None:
    """Answer each line of `requests` in turn; the GPU is opened at the first."""
    gpu: Gpu | None = None
    for line in requests:
        try:
            order = json.loads(line)
            job = jobs[order["job"]]
            gpu = gpu or open_gpu(index)
            answer: dict[str, Any] = {"result": job(gpu, order)}
        except DeviceFault as fault:
            answer = _error(fault.code, fault, fault.exit_code, ends=fault.sticky)
        except CakeError as error:
            answer = _error("device/environment", error, error.exit_code)
        except (ValueError, KeyError, OSError) as error:
            # The order does not fit: a file is missing, an input has another shape than the plan says.
            answer = _error("device/order", f"{type(error).__name__}: {error}", ExitCode.USAGE)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if answer.get("error", {}).get("ends"):
            return


def _error(code: str, message: object, exit_code: ExitCode, *, ends: bool = False) -> dict[str, Any]:
    return {"error": {"code": code, "message": str(message), "exit_code": int(exit_code), "ends": ends}}


def _own_stdout() -> TextIO:
    """Keep standard output for answers: what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    main()
