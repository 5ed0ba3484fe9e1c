"""A tensor map is rewritten while copies that use it may be in flight

Finds
    `tensormap_publish` writes to a tensor map in global memory before the copies that read it are known to be
    complete.

Why
    The copy engine reads the map any time until the copy is complete: it may find one half of the old map and
    one of the new, and fetch rows of another part.

Mend
    Wait for the mbarrier of the last load that uses the map, then publish; or keep several maps and take them
    in turn.

Silent when
    The copies use maps that the host made: nobody rewrites these.

Source
    PTX ISA, "tensormap.cp_fenceproxy"; public reports of grouped products that are slightly wrong at times.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.kinds.rule import Bad, Good, Rule
from cake.machine.facts import Facts, Finding, Race

KERNEL = """
@kernel(arch="sm_90a")
def parts(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N], maps: GlobalOut[u32, 1, 32]):
    require(N == 64, M % 8 == 0)
    grid(1)
    t = Shared[u32, 32]
    s = Shared[bf16, 2, 8, 64](swizzle=128)
    full = MBarrier[2](arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        tensormap_init(t, x[0:+8, 0:+64], s[0])
        for i in range(M // 8):
            j, parity = ring(i, 2)
            with one_thread():
                tensormap_replace(t, x[i * 8, 0], 8, N)
            tensormap_publish(maps[0, :], t){publish}
            with one_thread():
                bulk_wait_read(0)
                fence_tensormap(maps[0, :])
                expect_bytes(full[j], s[j])
                tma_load(s[j], x[0:+8, :], full[j], map=maps[0, :]){load}
            {early}
            if i > 0:
                k, before = ring(i - 1, 2)
                {late}
                with one_thread():
                    tma_store(y[i * 8 - 8:+8, :], s[k])
                    bulk_commit()
        last, odd = ring(M // 8 - 1, 2)
        wait(full[last], odd)
        with one_thread():
            tma_store(y[M - 8:+8, :], s[last])
            bulk_commit()
            bulk_wait_read(0)
"""


class RewrittenTensormap(Rule):
    family = "sync"
    archs = ">=sm_90"
    message = (
        "`{later}` rewrites a tensor map in {buffer} while the copy engine may still read it for `{earlier}`"
    )
    help = "wait for the mbarrier of line {line} before the map is published again, or take maps in turn"
    cases = (
        Bad(
            "published for the next part before the load of this one is over",
            KERNEL.format(
                publish="  #!", load="  #> still be reading", early="pass", late="wait(full[k], before)"
            ),
            fixed=KERNEL.format(publish="", load="", early="wait(full[j], parity)", late="pass"),
            dims={"M": 40, "N": 64},
            records=("D08",),
        ),
        Good(
            "after the wait",
            KERNEL.format(publish="", load="", early="wait(full[j], parity)", late="pass"),
            dims={"M": 40, "N": 64},
        ),
    )

    def claims(self, finding: Finding) -> bool:
        match finding:
            case Race(earlier=earlier, later=later):
                return earlier.proxy == "tensormap" and later.write
        return False

    def check(self, facts: Facts) -> Iterable[Diagnostic]:
        for race in filter(self.claims, facts.of(Race)):
            earlier, later = race.earlier, race.later
            yield self.report(
                later.span,
                "rewritten here",
                secondary=((earlier.span, "may still be reading"),),
                buffer=later.buffer.name,
                earlier=earlier.primitive,
                later=later.primitive,
                line=earlier.span.line,
            )
