"""A child process that answers JSON lines, with a deadline that kills.

What may hang, crash or eat memory (a compiler, a kernel on a GPU) runs in one, so that it costs its own
process and nothing else.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

_LAST_WORDS = 2000


class ChildDied(Exception):
    """The child ended, or said something that is no answer; the message is how, and its last words."""


class Child:
    """A process that answers each JSON line with one; its standard error goes to a file without a name."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed by `kill`
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # killing takes along what it started
        )
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._buffer = b""

    def ask(self, order: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """One line out, one line in. Raises TimeoutError after `seconds`, ChildDied; kill it after either."""
        try:
            self.send(order)
            for answer in self.answers(seconds):
                return answer
        except (BrokenPipeError, ValueError):
            pass
        raise ChildDied(self.last_words())

    def send(self, message: Mapping[str, Any]) -> None:
        """One line out. Raises BrokenPipeError where the child is gone."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def answers(self, seconds: float) -> Iterator[dict[str, Any]]:
        """What the child says, until it ends. Raises TimeoutError after `seconds`, ValueError for no JSON."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                yield json.loads(line)
                continue
            left = deadline - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                raise TimeoutError
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                return
            self._buffer += read

    def last_words(self) -> str:
        """How it ended, and the last line it wrote to standard error."""
        try:
            status = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return "it closed its pipe and goes on"
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _LAST_WORDS))
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"{how}: {said[-1]}" if said else how

    def kill(self) -> None:
        """End it and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(BrokenPipeError):
                if file is not None:
                    file.close()
