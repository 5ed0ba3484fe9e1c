"""A value is read in whose place another buffer was written

Finds
    An instruction reads bytes of a shared buffer whose value is gone: another buffer that lies over the same
    bytes (`overlay=`) was written since, with elements of another dtype or under another swizzle.

Why
    Buffers over the same bytes save shared memory as long as one is done with before the other begins. Where
    their lifetimes overlap, the reader gets the other's bits.

Mend
    Read before the other buffer is written, and let the readers and the writers meet in between; or give the
    buffer bytes of its own.

Silent when
    Nothing orders the two accesses: that is a race, and reported as one. Both buffers hold the same dtype
    under the same swizzle: what was written through one is a value of the other.

Source
    Public kernels whose epilogue staged its tile over operands that were still to be read.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Displaced, Facts, Finding

MENDED = """
@kernel(arch="sm_80")
def halves(x: Global[f32, N], y: GlobalOut[f32, N], z: GlobalOut[bf16, N]):
    grid(1)
    wide = Shared[f32, 128]
    narrow = Shared[bf16, 128](overlay=wide)
    with role("row", warps=4):
        store(wide[:], load(x[:], vector=1, fill=0.0), vector=1)
        cta_sync()
        v = load(wide[:], vector=1)
        cta_sync()
        store(narrow[:], cast(v, bf16), vector=1)
        cta_sync()
        store(z[:], load(narrow[:], vector=1), vector=1)
        store(y[:], v, vector=1)
"""

OTHER_HALF = """
@kernel(arch="sm_80")
def halves(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    wide = Shared[f32, 2, 64]
    narrow = Shared[bf16, 128](overlay=wide, offset=256)
    with role("row", warps=2):
        store(wide[0, :], load(x[0:+64], vector=1), vector=1)
        v = load(x[64:+64], vector=1)
        store(narrow[0:+64], cast(v, bf16), vector=1)
        store(narrow[64:+64], cast(v, bf16), vector=1)
        cta_sync()
        store(y[0:+64], load(wide[0, :], vector=1), vector=1)
        store(y[64:+64], cast(load(narrow[64:+64], vector=1), f32), vector=1)
"""


class OverlappingLifetimes(Rule):
    family = "mem"
    message = "`{reader}` reads `{buffer}`, in whose place `{writer}` has written `{other}`"
    help = "read `{buffer}` before `{other}` is written, or give `{other}` bytes of its own"
    cases = (
        Bad(
            "read after the narrow copy took its place",
            """
@kernel(arch="sm_80")
def halves(x: Global[f32, N], y: GlobalOut[f32, N], z: GlobalOut[bf16, N]):
    grid(1)
    wide = Shared[f32, 128]
    narrow = Shared[bf16, 128](overlay=wide)
    with role("row", warps=4):
        store(wide[:], load(x[:], vector=1, fill=0.0), vector=1)
        cta_sync()
        v = load(wide[:], vector=1)
        cta_sync()
        store(narrow[:], cast(v, bf16), vector=1)  #> takes its place
        cta_sync()
        store(z[:], load(narrow[:], vector=1), vector=1)
        store(y[:], load(wide[:], vector=1), vector=1)  #!
""",
            fixed=MENDED,
            dims={"N": 128},
        ),
        Bad(
            "the same bytes under another swizzle",
            """
@kernel(arch="sm_80")
def swap(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    plain = Shared[bf16, 8, 64]
    mixed = Shared[bf16, 8, 64](swizzle=128, overlay=plain)
    with role("row", warps=1):
        cp_async(plain, x[0:+8, 0:+64])  #> takes its place
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        for i in range(8):
            store(y[i, :], load(mixed[i, :], vector=2), vector=2)  #!
""",
            fixed="""
@kernel(arch="sm_80")
def swap(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    plain = Shared[bf16, 8, 64](swizzle=128)
    mixed = Shared[bf16, 8, 64](swizzle=128, overlay=plain)
    with role("row", warps=1):
        cp_async(plain, x[0:+8, 0:+64])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        for i in range(8):
            store(y[i, :], load(mixed[i, :], vector=2), vector=2)
""",
            dims={"M": 8, "N": 64},
        ),
        Good("one after the other", MENDED, dims={"N": 128}),
        Good("over the other half", OTHER_HALF, dims={"N": 128}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, Displaced)

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in facts.of(Displaced):
            access, by = found.access, found.by
            yield self.report(
                access.span,
                "its value is gone",
                secondary=((by.span, f"`{by.primitive}` takes its place"),),
                reader=access.primitive,
                buffer=access.buffer.name,
                writer=by.primitive,
                other=by.buffer.name,
            )
