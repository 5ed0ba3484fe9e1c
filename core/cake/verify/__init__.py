"""The verifier: rules over typed instances and over what the machine observes on them."""

from cake.verify.engine import Report, check

__all__ = ["Report", "check"]
