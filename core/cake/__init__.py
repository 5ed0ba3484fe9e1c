"""cake: evolves GPU kernels and the tools that judge them."""

__version__ = "0.1.0"
