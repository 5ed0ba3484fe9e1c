"""cake: evolves GPU kernels and the tools that judge them."""

import pluggy

__version__ = "0.1.0"

hookimpl = pluggy.HookimplMarker("cake")
"""Marks the functions of an entry-point module that answer the hooks of `cake.hookspecs`."""
