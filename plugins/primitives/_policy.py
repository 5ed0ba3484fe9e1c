"""Hints to the L2 cache: what a copy asks to be evicted first or last. Shared by the copies."""

from __future__ import annotations

from cake.kinds.primitive import Parameter, Site, Writer, parameter

HINTS = ("", "evict_first", "evict_last")


def hint_parameter() -> Parameter:
    """`hint="evict_first"`."""
    return parameter("hint", "text", default="")


def check_hint(site: Site) -> None:
    """Refuse a word that is no hint."""
    if site.text("hint") not in HINTS:
        words = " or ".join(f'"{word}"' for word in HINTS[1:])
        raise site.refuse("hint", f'the hint is {words}, not "{site.text("hint")}"')


def policy(site: Site, out: Writer) -> str:
    """C++ expression of the 64-bit cache policy, made by createpolicy; "" without a hint. Other values are no
    policies, and fault (PTX ISA, "createpolicy")."""
    hint = site.text("hint")
    if not hint:
        return ""
    name = f"cake_{hint}"
    text = (
        f"__device__ __forceinline__ unsigned long long {name}() {{\n    unsigned long long policy;\n"
        f'    asm("createpolicy.fractional.L2::{hint}.b64 %0, 1.0;" : "=l"(policy));\n'
        "    return policy;\n}"
    )
    return f"{out.helper(name, text)}()"
