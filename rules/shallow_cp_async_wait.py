"""Bytes of a cp.async are used before its group is known to be complete

Finds
    Shared memory that `cp_async` writes is used although `cp_async_wait(n)` leaves its group in flight, or
    the wait is missing, or no rendezvous follows it.

Why
    Groups complete in order; `cp_async_wait(n)` leaves the n youngest in flight, and it speaks for the
    copies of the calling thread alone.

Mend
    Lower n to the groups committed after the one that is read, and let the threads meet after the wait.

Silent when
    The copy is a bulk load (sync/unawaited-tma-load).

Source
    PTX ISA, "cp.async.wait_group".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.ir import nodes as n
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Race
from cake_plugins.rules._ring import before, calls_in

MENDED = """
@kernel(arch="sm_80")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0)
    grid(1)
    at = Shared[bf16, 2, 16, 64](swizzle=128)
    with role("all", warps=1):
        acc = zeros(f32, 16, 16, layout="mma")
        cp_async(at[0], a[0:+16, 0:+64])
        cp_async_commit()
        for j in range(ceil_div(K, 64)):
            cta_sync()
            cp_async(at[(j + 1) % 2], a[0:+16, (j + 1) * 64:+64])
            cp_async_commit()
            cp_async_wait(1)
            cta_sync()
            fa = ldmatrix(at[j % 2], layout="mma_a")
            fb = ldmatrix(at[j % 2], layout="mma_b")
            acc = mma(fa, fb, acc)
        cp_async_wait(0)
        store(c[0:+16, 0:+16], acc, vector=1)
"""


class ShallowCpAsyncWait(Rule):
    family = "sync"
    message = "`{later}` uses {buffer} while the `{earlier}` that fills it may be in flight"
    help = "{mend}"
    cases = (
        Bad(
            "one group too many stays in flight",
            """
@kernel(arch="sm_80")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0)
    grid(1)
    at = Shared[bf16, 2, 16, 64](swizzle=128)
    with role("all", warps=1):
        acc = zeros(f32, 16, 16, layout="mma")
        cp_async(at[0], a[0:+16, 0:+64])  #> still be writing
        cp_async_commit()
        for j in range(ceil_div(K, 64)):
            cta_sync()
            cp_async(at[(j + 1) % 2], a[0:+16, (j + 1) * 64:+64])
            cp_async_commit()
            cp_async_wait(2)  #!
            cta_sync()
            fa = ldmatrix(at[j % 2], layout="mma_a")  #> used here
            fb = ldmatrix(at[j % 2], layout="mma_b")
            acc = mma(fa, fb, acc)
        cp_async_wait(0)
        store(c[0:+16, 0:+16], acc, vector=1)
""",
            fixed=MENDED,
            dims={"M": 16, "K": 320},
        ),
        Good("the group that is read is complete", MENDED, dims={"M": 16, "K": 320}),
    )

    def claims(self, finding: Finding) -> bool:
        match finding:
            case Race(earlier=earlier, cause="incomplete"):
                return earlier.asynchronous and earlier.write and earlier.proxy == "generic"
        return False

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for race in filter(self.claims, facts.of(Race)):
            earlier, later = race.earlier, race.later
            wait = before(calls_in(facts, later.role, "cp_async_wait"), later.span)
            places = [(later.span, "used here"), (earlier.span, "may still be writing")]
            if wait is not None:
                places.insert(0, (wait.span, "leaves the group in flight"))
            yield self.report(
                *places[0],
                secondary=tuple(places[1:]),
                buffer=later.buffer.name,
                earlier=earlier.primitive,
                later=later.primitive,
                mend=_mend(earlier.span.line, later.span.line, wait),
            )


def _mend(copied: int, used: int, wait: n.Call | None) -> str:
    count = f"n the groups committed after that of line {copied}"
    if wait is None:
        return f"before line {used}, add cp_async_wait(n), {count}, then cta_sync()"
    return f"lower the count in line {wait.span.line} to n, {count}; then cta_sync()"
