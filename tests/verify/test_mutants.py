"""A bug in each golden kernel is reported once, by its name, at its line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from cake import verify
from cake.ir import parse
from cake.plugins import Registry

KERNELS = Path(__file__).resolve().parents[2] / "plugins" / "kernels"


@dataclass(frozen=True)
class Mutant:
    """In `kernel`, `old` becomes `new` (nothing: the line becomes `pass`) at its occurrence number `nth`;
    then `code` is reported at the line that holds `at`, occurrence number `at_nth`."""

    kernel: str
    old: str
    new: str
    code: str
    at: str
    nth: int = 0
    at_nth: int = 0

    @property
    def id(self) -> str:
        what = f"drop {self.old}" if not self.new else f"{self.old} becomes {self.new}"
        return f"{self.kernel}: {what} ({self.nth})"


MUTANTS = [
    Mutant("softmax", "cta_sync()", "", "sync/shared-race", "reduce_max("),
    Mutant("softmax", "cta_sync()", "", "sync/shared-race", "reduce_sum(", nth=1),
    Mutant("softmax", "store(peaks[warp], warp_max(v))", "", "mem/uninitialized-read", "reduce_max("),
    Mutant("softmax", "fill=-inf", "fill=0.0", "num/phantom-identity", "warp_max("),
    Mutant("rmsnorm", "cta_sync()", "", "sync/shared-race", "reduce_sum("),
    Mutant("rmsnorm", "fill=0.0", "fill=1.0", "num/phantom-identity", "warp_sum("),
    Mutant("gemm_sm80", "cta_sync()", "", "sync/shared-race", "ldmatrix(at"),
    Mutant("gemm_sm80", "cp_async_commit()", "", "sync/shallow-cp-async-wait", "cp_async_wait("),
    Mutant("gemm_sm80", "cp_async_commit()", "", "sync/undrained-group", "cp_async(at[", nth=1, at_nth=1),
    Mutant("gemm_sm80", "cp_async_wait(STAGES - 2)", "", "sync/shallow-cp-async-wait", "ldmatrix(at"),
    Mutant(
        "gemm_sm80",
        "cp_async_wait(STAGES - 2)",
        "cp_async_wait(STAGES - 1)",
        "sync/shallow-cp-async-wait",
        "cp_async_wait(",
    ),
    Mutant("gemm_sm80", "cp_async_wait(0)", "", "sync/undrained-group", "cp_async(at[", at_nth=1),
    Mutant("gemm_sm90a", "mbarrier_init(full)", "", "sync/uninitialized-mbarrier", "expect_bytes("),
    Mutant("gemm_sm90a", "mbarrier_init(free)", "", "sync/uninitialized-mbarrier", "wait(free[s]"),
    Mutant("gemm_sm90a", "fence_mbarrier_init()", "", "sync/unfenced-mbarrier-init", "tma_load(at"),
    Mutant("gemm_sm90a", "cta_sync()", "", "sync/unsynced-mbarrier-init", "wait(full[s]"),
    Mutant("gemm_sm90a", "setmaxnreg_dec(40)", "", "res/register-budget", "setmaxnreg_inc("),
    Mutant("gemm_sm90a", "wait(free[s], parity ^ 1)", "", "sync/overwritten-stage", "tma_load(at"),
    Mutant(
        "gemm_sm90a",
        "wait(free[s], parity ^ 1)",
        "wait(free[s], parity)",
        "sync/phase-deadlock",
        "wait(free[s]",
    ),
    Mutant(
        "gemm_sm90a", "wait(full[s], parity)", "wait(full[s], parity ^ 1)", "sync/wait-parity", "wait(full[s]"
    ),
    Mutant("gemm_sm90a", "wait(full[s], parity)", "", "sync/unawaited-tma-load", "acc = wgmma("),
    Mutant(
        "gemm_sm90a", "expect_bytes(full[s], at[s], bt[s])", "", "sync/wrong-transaction-bytes", "tma_load(at"
    ),
    Mutant(
        "gemm_sm90a",
        "expect_bytes(full[s], at[s], bt[s])",
        "expect_bytes(full[s], 2 * BK * (BM + BN) - 1)",
        "sync/wrong-transaction-bytes",
        "expect_bytes(",
    ),
    Mutant("gemm_sm90a", "at[s], bt[s])", "at[s])", "sync/wrong-transaction-bytes", "expect_bytes("),
    Mutant("gemm_sm90a", "wgmma_fence()", "", "sync/unfenced-accumulator", "acc = wgmma("),
    Mutant("gemm_sm90a", "wgmma_commit()", "", "sync/undrained-group", "acc = wgmma("),
    Mutant("gemm_sm90a", "wgmma_wait(0)", "", "sync/early-release", "arrive(free[s])"),
    Mutant("gemm_sm90a", "wgmma_wait(0)", "wgmma_wait(1)", "sync/early-release", "arrive(free[s])"),
    Mutant("gemm_sm90a", "arrive(free[s])", "", "sync/phase-deadlock", "wait(free[s]"),
    Mutant("gemm_sm90a", "arrivals=BM // 16", "arrivals=BM // 8", "sync/arrival-count", "free = MBarrier"),
    Mutant("gemm_sm90a", "arrivals=BM // 16", "arrivals=BM // 32", "sync/overwritten-stage", "tma_load(at"),
    Mutant("gemm_sm90a", "range(tiles_k)", "range(tiles_k - 1)", "sync/role-trip-mismatch", "wait(full[s]"),
    Mutant(
        "gemm_sm90a", "range(tiles_k)", "range(tiles_k - 1)", "sync/role-trip-mismatch", "wait(free[s]", nth=1
    ),
    Mutant("gemm_sm90a", "warps=4)", "warps=2)", "sync/named-barrier-count", "named_sync("),
    Mutant("gemm_sm90a", "bulk_wait_read(0)", "", "sync/staging-reuse", "stmatrix("),
    Mutant("gemm_sm90a", "named_sync(1 + warpgroup, warps=4)", "", "sync/staging-reuse", "stmatrix("),
    Mutant("gemm_sm90a", "fence_async()", "", "sync/unfenced-tma-store", "tma_store("),
    Mutant("gemm_sm90a", "named_sync(1 + warpgroup, warps=4)", "", "sync/shared-race", "tma_store(", nth=1),
    Mutant("gemm_sm90a", "bulk_commit()", "", "sync/undrained-bulk-store", "tma_store("),
    Mutant("gemm_sm90a", "bulk_wait_read(0)", "", "sync/undrained-bulk-store", "tma_store(", nth=1),
]


def line_of(text: str, part: str, nth: int) -> int:
    """The number of the line that holds occurrence `nth` of `part`."""
    found = [number for number, line in enumerate(text.split("\n"), 1) if part in line]
    return found[nth]


def mutated(text: str, mutant: Mutant) -> str:
    """The kernel with the mutant's edit."""
    lines = text.split("\n")
    at = line_of(text, mutant.old, mutant.nth) - 1
    if mutant.new:
        lines[at] = lines[at].replace(mutant.old, mutant.new)
    else:
        lines[at] = lines[at][: len(lines[at]) - len(lines[at].lstrip())] + "pass"
    return "\n".join(lines)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.id)
def test_a_mutant_is_reported_at_its_line(mutant: Mutant, registry: Registry) -> None:
    text = mutated((KERNELS / f"{mutant.kernel}.cake").read_text(), mutant)
    report = verify.check(parse(text, mutant.kernel), registry)
    assert not report.ok
    said = [(d.code, d.primary.span.line) for d in report.diagnostics]
    assert said == [(mutant.code, line_of(text, mutant.at, mutant.at_nth))]
    assert all(d.help and d.instance for d in report.diagnostics)


@pytest.mark.parametrize("name", sorted(path.stem for path in KERNELS.glob("*.cake")))
def test_a_golden_kernel_is_silent_and_leaves_nothing_unchecked(name: str, registry: Registry) -> None:
    report = verify.check(parse((KERNELS / f"{name}.cake").read_text(), name), registry)
    assert report.ok
    assert report.diagnostics == ()
    assert report.unchecked == ()
    assert len(report.instances) >= 2
