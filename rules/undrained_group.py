"""A warp ends with copies or matrix products in flight

Finds
    A group of `cp_async` or `wgmma` is in flight, or was never committed, when the warp ends.

Why
    A cp.async writes shared memory that may belong to the next CTA; results of a wgmma nobody waits for are
    lost.

Mend
    `cp_async_wait(0)` or `wgmma_wait(0)` before the end.

Silent when
    Bulk stores (sync/undrained-bulk-store).

Source
    PTX ISA, "cp.async.wait_all", "wgmma.wait_group".
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Undrained

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

MENDED_WGMMA = """
@kernel(arch="sm_90a")
def square(y: GlobalOut[f32, M, N]):
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("tile", warpgroups=1):
        stmatrix(s[:, :], cast(zeros(f32, 64, 64, layout="wgmma"), bf16))
        fence_async()
        named_sync(1, warps=4)
        acc = zeros(f32, 64, 64, layout="wgmma")
        wgmma_fence()
        acc = wgmma(s, s, acc)
        wgmma_commit()
        wgmma_wait(0)
        store(y[0:+64, 0:+64], acc, vector=1)
"""


class UndrainedGroup(Rule):
    family = "sync"
    message = "an asynchronous operation {state} when its warp ends"
    help = "{mend}"
    cases = (
        Bad(
            "the last group is not waited for",
            """
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
            cp_async(at[(j + 1) % 2], a[0:+16, (j + 1) * 64:+64])  #!
            cp_async_commit()
            cp_async_wait(1)
            cta_sync()
            fa = ldmatrix(at[j % 2], layout="mma_a")
            fb = ldmatrix(at[j % 2], layout="mma_b")
            acc = mma(fa, fb, acc)
        store(c[0:+16, 0:+16], acc, vector=1)
""",
            fixed=MENDED,
            dims={"M": 16, "K": 320},
        ),
        Bad(
            "a wgmma that is never committed",
            """
@kernel(arch="sm_90a")
def square(y: GlobalOut[f32, M, N]):
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("tile", warpgroups=1):
        stmatrix(s[:, :], cast(zeros(f32, 64, 64, layout="wgmma"), bf16))
        fence_async()
        named_sync(1, warps=4)
        acc = zeros(f32, 64, 64, layout="wgmma")
        wgmma_fence()
        acc = wgmma(s, s, acc)  #!
        wgmma_wait(0)
        store(y[0:+64, 0:+64], acc, vector=1)
""",
            fixed=MENDED_WGMMA,
            dims={"M": 64, "N": 64},
        ),
        Good("waited for", MENDED, dims={"M": 16, "K": 320}),
    )

    def claims(self, finding: Finding) -> bool:
        return isinstance(finding, Undrained) and finding.group != "bulk"

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for found in filter(self.claims, facts.of(Undrained)):
            kind = found.group
            state = "is in flight" if found.committed else "was never committed"
            mend = f"add {kind}_wait(0) before the end of the role"
            if not found.committed:
                line = found.span.line
                mend = f"add {kind}_commit() after line {line}, before the {kind}_wait(...) that counts it"
            yield self.report(found.span, "issued here", state=state, mend=mend)
