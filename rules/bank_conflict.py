"""Lanes of one access take turns at the banks of shared memory

Finds
    An access to shared memory (rows held as vectors, matrices of ldmatrix and stmatrix) that takes more
    turns of the port than its bytes need, because lanes that are served together want different words of
    one bank.

Why
    Shared memory has 32 banks of 4 bytes. Of the lanes served together (all of a warp up to 4 bytes a lane,
    half of it for 8, a quarter for 16; the 8 rows of a matrix) each bank serves one word a turn. Eight rows
    of 16 bytes at a pitch of 128 bytes take 8 turns where 1 would do.

Mend
    Give the buffer the swizzle as wide as its rows, or pad its rows by one access. The help names the one
    that was found, by counting, to take the fewest turns.

Silent when
    The result is right all the same: this is a warning. Tensor cores and the copy engine are not counted:
    their layouts are fixed by the swizzle.

Source
    CUDA C++ Programming Guide, "Shared Memory"; cutlass issue 3172.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.ir.layouts import SWIZZLES, Traffic, traffic
from cake.ir.types import Buffer
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import BankConflict as Turns
from cake.machine.facts import Facts

PRODUCT = """
@kernel(arch="sm_80")
def product(a: Global[bf16, M, K], b: Global[bf16, N, K], c: GlobalOut[f32, M, N]):
    require(K % 8 == 0, N % 2 == 0)
    grid(1)
    s = Shared[bf16, 32, 64]{option}
    with role("all", warps=1):
        cp_async(s[0:+16, :], a[0:+16, 0:+64])
        cp_async(s[16:+16, :], b[0:+16, 0:+64])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f32, 16, 16, layout="mma")
        fa = ldmatrix(s[0:+16, :], layout="mma_a"){mark}
        fb = ldmatrix(s[16:+16, :], layout="mma_b"){mark}
        acc = mma(fa, fb, acc)
        store(c[0:+16, 0:+16], acc, vector=2)
"""
DIMS = {"M": 16, "N": 16, "K": 64}

COLUMN = """
@kernel(arch="sm_80")
def turn(x: Global[f32, M, N], y: GlobalOut[f32, N, M]):
    grid(1)
    s = Shared[f32, 32, {pitch}]
    with role("all", warps=1):
        for i in range(32):
            store(s[i, 0:+32], load(x[i, 0:+32], vector=1), vector=1)
        for i in range(32):
            store(y[i, 0:+32], load(s[:, i], vector=1), vector=1){mark}
"""


class BankConflict(Rule):
    family = "perf"
    severity = "warning"
    message = "`{user}` takes {turns} turns at the banks of `{buffer}` where {least} would do"
    help = "give `{buffer}` rows of another length or swizzle"
    cases = (
        Bad(
            "rows of 128 bytes without a swizzle",
            PRODUCT.format(option="", mark="  #!"),
            fixed=PRODUCT.format(option="(swizzle=128)", mark=""),
            dims=DIMS,
            records=("L04",),
        ),
        Bad(
            "a swizzle that leaves out the bits in which rows differ",
            PRODUCT.format(option="(swizzle=32)", mark="  #!"),
            fixed=PRODUCT.format(option="(swizzle=128)", mark=""),
            dims=DIMS,
            records=("L04",),
        ),
        Bad(
            "a column of words",
            COLUMN.format(pitch=32, mark="  #!"),
            fixed=COLUMN.format(pitch=33, mark=""),
            dims={"M": 32, "N": 32},
        ),
        Good(
            "rows one word longer than the banks", COLUMN.format(pitch=33, mark=""), dims={"M": 32, "N": 32}
        ),
    )

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in facts.conflicts.values():
            yield self.report(
                found.span,
                f"{found.traffic.wavefronts / found.traffic.least:.3g} times as long as it need be",
                help=mend(found),
                user=found.primitive,
                buffer=found.buffer.name,
                turns=found.traffic.wavefronts,
                least=found.traffic.least,
            )


def mend(found: Turns) -> str:
    """The swizzle or, where none helps as much, the padding that takes the fewest turns."""
    buffer, seen = found.buffer, found.traffic
    size = buffer.dtype.bytes
    row = buffer.shape[-1] * size
    swizzles = [(turns(seen, row, s), s) for s in SWIZZLES if s != buffer.swizzle and not (s and row % s)]
    paddings = [(turns(seen, row + pad, 0), pad) for pad in (max(size, seen.width), 16) if not buffer.swizzle]
    best, swizzle = min(swizzles, default=(seen.wavefronts, 0))
    fewest, pad = min(paddings, default=(seen.wavefronts, 0))
    now = turns(seen, row, buffer.swizzle)
    if best < now and best <= fewest:
        return f"Shared[{_shape(buffer)}](swizzle={swizzle})" if swizzle else f"no swizzle on `{buffer.name}`"
    if fewest < now:
        return f"pad the rows of `{buffer.name}` to {(row + pad) // size} elements"
    return f"give `{buffer.name}` rows of another length or swizzle"


def turns(seen: Traffic, pitch: int, swizzle: int) -> int:
    """What the access with the most conflicts takes on other rows."""
    return traffic([seen.lanes], seen.width, pitch=pitch, swizzle=swizzle).wavefronts


def _shape(buffer: Buffer) -> str:
    return ", ".join([buffer.dtype.value, *map(str, buffer.shape)])
