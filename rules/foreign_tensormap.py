"""A load takes a tensor map that no map of the kernel can be

Finds
    `tma_load(..., map=...)` of a window for which no `tensormap_init` makes maps: of another tensor, of boxes
    of another size, or for a buffer with another swizzle.

Why
    Box and swizzle stand in the map, and the load cannot change them: it would fill other bytes than the
    window, and deliver another number of them to the mbarrier.

Mend
    Make the map for the window and the buffer that the load names: `tensormap_init(t, a[0:+BM, 0:+BK], s)`.

Silent when
    Some `tensormap_init` fits, whether its map is the one used or not.

Source
    PTX ISA, "cp.async.bulk.tensor", "Tensor Map".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.ir import nodes as n
from cake.kinds.primitive import Site
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts

KERNEL = """
@kernel(arch="sm_90a")
def part(x: Global[bf16, M, N], y: GlobalOut[bf16, 8, N], maps: GlobalOut[u32, 1, 32]):
    require(N == 64, M >= 16)
    grid(1)
    t = Shared[u32, 32]
    s = Shared[bf16, 8, 64](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        tensormap_init(t, x[0:+8, :], {like}){made}
        tensormap_publish(maps[0, :], t)
        with one_thread():
            fence_tensormap(maps[0, :])
            expect_bytes(full, s)
            tma_load(s, x[0:+8, :], full, map=maps[0, :]){load}
        wait(full, 0)
        with one_thread():
            tma_store(y[:, :], s)
            bulk_commit()
            bulk_wait_read(0)
"""
PLAIN = KERNEL.replace("    full =", "    other = Shared[bf16, 8, 64]\n    full =")


class ForeignTensormap(Rule):
    family = "mem"
    needs = "instance"
    archs = ">=sm_90"
    message = "no tensor map of this kernel loads boxes {box} of {tensor} under a swizzle of {swizzle}"
    help = "tensormap_init(...) with the window and the buffer of this load"
    cases = (
        Bad(
            "made for a buffer without swizzle",
            PLAIN.format(like="other", made="  #> made here", load="  #!"),
            fixed=PLAIN.format(like="s", made="", load=""),
            dims={"M": 16, "N": 64},
        ),
        Good("made for this one", KERNEL.format(like="s", made="", load=""), dims={"M": 16, "N": 64}),
    )

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        instance = facts.instance
        calls = [call for call in n.calls(instance.kernel.body) if instance.is_primitive(call)]
        made = [
            (call, _loads(instance.site(call), "window", "like"))
            for call in calls
            if call.name == "tensormap_init"
        ]
        for call in calls:
            site = instance.site(call)
            if call.name != "tma_load" or not site.has("map"):
                continue
            wanted = _loads(site, "source", "destination")
            if all(found != wanted for _, found in made):
                tensor, box, swizzle = wanted
                yield self.report(
                    call.span,
                    "loaded here",
                    secondary=tuple((other.span, "made here") for other, _ in made),
                    tensor=tensor,
                    box=list(box),
                    swizzle=swizzle,
                )


def _loads(site: Site, tensor: str, shared: str) -> tuple[str, tuple[int, ...], int]:
    """Tensor, box and swizzle."""
    window = site.region(tensor)
    return window.buffer.name, window.window, site.region(shared).buffer.swizzle
