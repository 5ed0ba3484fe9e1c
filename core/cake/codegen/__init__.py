"""IR -> CUDA C++ -> cubin."""

from cake.codegen.compile import Compiled, compile_source
from cake.codegen.generate import Generated, generate
from cake.codegen.plan import LaunchPlan

__all__ = ["Compiled", "Generated", "LaunchPlan", "compile_source", "generate"]
