"""CAKE IR: parse, print, name by content, and instantiate on concrete shapes."""

from cake.ir.nodes import Kernel
from cake.ir.parser import parse
from cake.ir.printer import content_hash, print_kernel

__all__ = ["Instance", "Kernel", "content_hash", "instantiate", "parse", "print_kernel"]

from cake.ir.instance import Instance, instantiate
