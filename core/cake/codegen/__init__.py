"""IR -> CUDA C++ -> cubin."""

from cake.codegen.generate import Generated, generate
from cake.codegen.plan import LaunchPlan

__all__ = ["Generated", "LaunchPlan", "generate"]
