"""A deadline for code of plugins in this process: interrupted wherever it is, until it gives up.

Python code can be interrupted by a signal, on the main thread alone; elsewhere there is no deadline, and who
asked is told. Code that runs no Python (a native call that never returns) is out of reach: what may do that
runs in a child (`cake.child`).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

AGAIN_S = 0.05
"""Until the next interrupt, for code that catches everything."""


class Overrun(BaseException):
    """The deadline has passed. No `Exception`: code that catches those is interrupted all the same."""


@contextmanager
def deadline(seconds: float) -> Iterator[bool]:
    """Raise Overrun in the body once so many seconds have passed. Yields whether that is possible here: on
    the main thread, where no other timer runs."""
    possible = (
        hasattr(signal, "setitimer")
        and threading.current_thread() is threading.main_thread()
        and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    )
    if not possible:
        yield False
        return

    def interrupt(number: int, frame: object) -> None:
        raise Overrun

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
        yield True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
