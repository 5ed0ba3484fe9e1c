"""Failures that a user can act on: one message, one exit code, no traceback.

A refused kernel is not here: that is `diagnostics.KernelErrors`, which carries places in the kernel's text.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a `cake` process means by its exit status."""

    OK = 0
    REFUSED = 1
    """A kernel or candidate was refused, or the goal was not met."""
    USAGE = 2
    """Wrong usage or bad input: unknown name, unreadable file, bad value."""
    ENVIRONMENT = 3
    """Something the command needs is missing here: GPU, git, disk."""
    INTERNAL = 4
    """A plugin is broken, or cake itself is."""
    INTERRUPTED = 130


class CakeError(Exception):
    """Says what is wrong, where, and what to do; the command line prints it and exits with `exit_code`."""

    exit_code: ExitCode = ExitCode.USAGE


class Refused(CakeError):
    """The thing judged did not hold: a kernel, a plugin's tests, a goal."""

    exit_code = ExitCode.REFUSED


class MissingEnvironment(CakeError):
    """This machine lacks something the command needs."""

    exit_code = ExitCode.ENVIRONMENT


class BrokenPlugin(CakeError):
    """A plugin cannot be used, and the command cannot go on without it."""

    exit_code = ExitCode.INTERNAL
