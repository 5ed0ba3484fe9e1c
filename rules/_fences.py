"""Where a proxy fence belongs, said alike by the rules that miss one."""

from __future__ import annotations

from cake.machine.facts import Access


def fence_place(earlier: Access, until: str) -> str:
    """After which access through the generic proxy, and until when. The copies of cp.async have no thread of
    their own: whoever knows them to be complete fences them."""
    name, line = earlier.primitive, earlier.span.line
    if earlier.asynchronous:
        return f"once the `{name}` of line {line} is known to be complete, before the bytes go on"
    return f"after the `{name}` in line {line}, {until}"
