"""The abstract GPU: one run of a kernel instance, read as facts, values or time."""

from cake.machine.engine import FragmentValue, Memory, Run, run

__all__ = ["FragmentValue", "Memory", "Run", "run"]
