"""Mutation of kernels: changes that harm or keep what a kernel does, to measure what the verifier sees."""

from cake.mutate.counts import COUNTS
from cake.mutate.judge import STAGES, Count, Outcome, false_alarms, judge, tally
from cake.mutate.memory import MEMORY
from cake.mutate.mutant import Mutant, Operator, derive, subject
from cake.mutate.preserve import PRESERVING
from cake.mutate.synchronization import SYNCHRONIZATION
from cake.mutate.truth import Truth, task_of

OPERATORS = (*SYNCHRONIZATION, *COUNTS, *MEMORY)
"""Every operator that changes what a kernel does. The first that makes a text has it."""

__all__ = [
    "OPERATORS",
    "PRESERVING",
    "STAGES",
    "Count",
    "Mutant",
    "Operator",
    "Outcome",
    "Truth",
    "derive",
    "false_alarms",
    "judge",
    "subject",
    "tally",
    "task_of",
]
