"""Tensor memory is used, freed or left against its allocation

Finds
    Tensor memory that is used without having been allocated, over more columns than were, by warps that
    do not know of the allocation yet, or after it was given back; that is given back while operations on
    it are under way, with another size, or never; that is allocated twice, or after the CTA gave up the
    permit to allocate.

Why
    Columns that were not allocated may belong to another CTA on the SM: it works until two share one. A
    CTA that ends without giving its columns back leaves the next one waiting for ever.

Mend
    `if warp == 0: tcgen05_alloc(n)` and a `cta_sync()` before the roles; behind them `cta_sync()` and `if
    warp == 0: tcgen05_dealloc(n)`.

Silent when
    The columns do not fit into tensor memory at all (res/tensor-capacity).

Source
    PTX ISA, "Tensor Memory Allocation and Management Instructions". Reported for tutorial kernels in
    public (M01).
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, TensorMisuse

KEEP = """
@kernel(arch="sm_100a")
def keep(y: GlobalOut[f32, M, N]):
    require(M == 128, N == 64)
    grid(1)
    t = TensorMemory[f32, 128, 64](column=0)
    if warp == 0:
        tcgen05_alloc(64)
        tcgen05_relinquish()
    cta_sync()
    with role("all", warpgroups=1):
        tcgen05_st(t, zeros(f32, 128, 64, layout="tensor"))
        tcgen05_wait_st()
        v = tcgen05_ld(t)
        tcgen05_wait_ld()
        store(y[0:+128, 0:+64], v, vector=4)
    cta_sync()
    if warp == 0:
        tcgen05_dealloc(64)
"""
STORE = 'tcgen05_st(t, zeros(f32, 128, 64, layout="tensor"))'
ALLOCATION = """    if warp == 0:
        tcgen05_alloc(64)
        tcgen05_relinquish()
"""
END = """    cta_sync()
    if warp == 0:
        tcgen05_dealloc(64)
"""

WORDS = {
    "unallocated": ("not allocated", "tcgen05_alloc(n) by one warp and a cta_sync() before the roles"),
    "beyond": ("more columns than were allocated", "allocate the columns up to the last one declared"),
    "unordered": ("may not be allocated yet", "a cta_sync() between tcgen05_alloc(n) and the roles"),
    "freed": ("given back before", "give it back behind the last use, after a cta_sync()"),
    "freed_in_use": ("given back while in use", "a cta_sync() behind the roles, before tcgen05_dealloc(n)"),
    "wrong_size": ("given back with another size", "tcgen05_dealloc(n) with the n of its tcgen05_alloc(n)"),
    "allocated_twice": ("allocated twice", "allocate once, by one warp"),
    "relinquished": (
        "allocated by a CTA that may have given up to allocate",
        "tcgen05_relinquish() behind the tcgen05_alloc(n), in the same warp",
    ),
    "leaked": ("never given back", "behind the roles: cta_sync(), then tcgen05_dealloc(n) by one warp"),
}


class UnallocatedTensorMemory(Rule):
    family = "mem"
    archs = "sm_100a"
    message = "tensor memory is {what}"
    help = "{mend}"
    cases = (
        Bad(
            "never allocated",
            KEEP.replace(ALLOCATION, "").replace(END, "").replace(STORE, f"{STORE}  #!"),
            fixed=KEEP,
            records=("M01",),
        ),
        Bad(
            "never given back",
            KEEP.replace(END, "").replace("tcgen05_alloc(64)", "tcgen05_alloc(64)  #!"),
            fixed=KEEP,
        ),
        Bad(
            "used before all warps know of it",
            KEEP.replace("    cta_sync()\n    with", "    with").replace(STORE, f"{STORE}  #!"),
            fixed=KEEP,
        ),
        Bad(
            "half of the columns",
            KEEP.replace("alloc(64)", "alloc(32)").replace(STORE, f"{STORE}  #!"),
            fixed=KEEP,
        ),
        Bad(
            "given back while others load",
            KEEP.replace(END, END.replace("    cta_sync()\n", "")).replace(
                "tcgen05_dealloc(64)", "tcgen05_dealloc(64)  #!"
            ),
            fixed=KEEP,
        ),
        Bad(
            "the permit is given up first",
            KEEP.replace(
                ALLOCATION,
                "    if warp == 0:\n"
                "        tcgen05_relinquish()  #> the other place\n"
                "        tcgen05_alloc(64)  #!\n",
            ),
            fixed=KEEP,
        ),
        Good("allocated, met, met again, given back", KEEP),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, TensorMisuse)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        told: set[str] = set()
        for found in facts.of(TensorMisuse):
            if found.kind in told:
                continue
            told.add(found.kind)
            what, mend = WORDS[found.kind]
            second = ((found.other, "the other place"),) if found.other else ()
            yield self.report(found.span, "here", secondary=second, what=what, mend=mend)
