"""What tile copies of the copy engine have in common: legality, alignment, coordinates."""

from __future__ import annotations

from math import prod

from cake.ir.layouts.legality import box, bulk_piece, stride
from cake.kinds.primitive import Site, Window, Writer
from cake.machine.effects import Region


def check_copy(site: Site, shared_name: str, global_name: str) -> None:
    """Refuse what a tensor map cannot say; each reason names the figure and the limit."""
    inner, outer = site.region(shared_name), site.region(global_name)
    if inner.dtype is not outer.dtype:
        raise site.refuse(shared_name, f"copies between {outer.dtype.value} and {inner.dtype.value}")
    if inner.shape != outer.shape:
        raise site.refuse(shared_name, f"the windows differ: {list(outer.shape)} and {list(inner.shape)}")
    for name, illegal in ((shared_name, bulk_piece(inner)), (global_name, box(outer))):
        if illegal is not None:
            raise site.refuse(name, illegal.reason, help=illegal.help)
    apart = stride(outer)
    if apart is not None:
        raise site.refuse(global_name, apart.reason, code="type/tma-stride", help=apart.help)


def alignment(swizzle: int) -> int:
    """Bytes at which the shared window must start: a whole swizzle pattern."""
    return 8 * swizzle if swizzle else 128


def inside(region: Region) -> int:
    """Bytes of the window that lie inside the tensor: what memory is asked for."""
    return prod(extent for _, extent in region.box) * region.buffer.dtype.bytes


def coordinates(window: Window, out: Writer) -> list[tuple[str, str]]:
    """The start of the window as operands, the contiguous axis first."""
    return [("r", out.coordinate(start)) for start in reversed(window.origin)]
