"""Shared buffers that lie over the bytes of others: where, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cake.diagnostics import Span
from cake.ir import nodes as n
from cake.ir.types import Buffer

ALIGNMENT = 128
"""Bytes at which a buffer without a swizzle starts; one with a swizzle starts at a whole pattern."""

Overlay = tuple[str, int, Buffer]
"""The buffer with bytes of its own at the bottom, the first byte in it, and the buffer laid over it."""


def place_overlays(
    declared: Iterable[n.Shared],
    buffers: Mapping[str, Buffer],
    value: Callable[[n.Expr, str], Any],
    refuse: Callable[[str, str, Span, str], None],
) -> dict[str, Overlay]:
    """By name, in order of the text. What is refused (`type/overlay`) is left out.

    An overlay lies wholly inside a buffer that is declared before it, which may be an overlay itself.
    """
    sizes: dict[str, int] = {}
    placed: dict[str, Overlay] = {}
    for stmt in declared:
        if stmt.overlay is None:
            sizes[stmt.name] = buffers[stmt.name].bytes
            continue
        below = stmt.overlay
        if below.id not in sizes:
            message = f"`{below.id}` is no shared buffer that is declared before `{stmt.name}`"
            refuse("type/overlay", message, below.span, "an overlay names a buffer whose bytes it shares")
            continue
        own = buffers[stmt.name]
        start = 0 if stmt.offset is None else value(stmt.offset, "an offset")
        span = stmt.span if stmt.offset is None else stmt.offset.span
        root, first, _ = placed.get(below.id, (below.id, 0, own))
        step = max(ALIGNMENT, 8 * own.swizzle)
        if not isinstance(start, int) or start < 0:
            refuse("type/overlay", f"an offset is a number of bytes from 0 on, here {start}", span, "")
        elif (first + start) % step:
            under = f"a swizzle of {own.swizzle} bytes" if own.swizzle else "a buffer"
            at = f"byte {first + start} of `{root}`"
            message = f"{under} starts at a multiple of {step} bytes, `{stmt.name}` at {at}"
            refuse("type/overlay", message, span, f"choose an offset that is a multiple of {step}")
        elif start + own.bytes > sizes[below.id]:
            message = f"`{stmt.name}` takes {own.bytes} bytes from byte {start} of `{below.id}`, which has"
            help = f"make `{below.id}` the larger of the two, and lay the other over it"
            refuse("type/overlay", f"{message} {sizes[below.id]}", span, help)
        else:
            sizes[stmt.name] = own.bytes
            placed[stmt.name] = (root, first + start, own)
    return placed
