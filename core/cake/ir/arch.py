"""Architectures by their compiler names, and which of them a claim covers.

Names with the suffix `a` are architecture-specific feature sets (PTX ISA, ".target"): code for sm_90a runs on
Hopper alone. A claim is `>=sm_80`, one name, or names joined by `|`.
"""

from __future__ import annotations

ARCHS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
"""What cake compiles for, oldest first."""

ALIASES = {"sm_90": "sm_90a", "sm_100": "sm_100a", "sm_120": "sm_120a"}
"""Generic names, compiled as the specific target of the same chip."""


def canonical(arch: str) -> str:
    """The name in ARCHS; KeyError for an architecture cake does not know."""
    name = ALIASES.get(arch, arch)
    if name not in ARCHS:
        raise KeyError(arch)
    return name


def number(arch: str) -> int:
    """90 for sm_90a."""
    return int(arch.removeprefix("sm_").rstrip("a"))


def admits(claim: str, arch: str) -> bool:
    """Whether `claim` covers `arch` (a name in ARCHS)."""
    if claim.startswith(">="):
        return number(arch) >= number(claim[2:])
    return any(canonical(name) == arch for name in claim.split("|"))


def claimed(kernel_arch: str) -> tuple[str, ...]:
    """Where a kernel declared for `kernel_arch` runs: there and, if the name is plain, on all later ones."""
    if kernel_arch.endswith("a"):
        return (canonical(kernel_arch),)
    return tuple(arch for arch in ARCHS if number(arch) >= number(kernel_arch))
