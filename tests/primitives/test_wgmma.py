"""wgmma: matrix descriptors, accumulators behind the wait, windows that start off the swizzle pattern."""

from __future__ import annotations

import re

import pytest

from cake.codegen import generate
from cake.ir import parse
from cake.ir.instance import Instance, instantiate
from cake.machine import facts
from cake.machine.engine import run
from cake.plugins import Registry

KERNEL = """
@kernel(arch="sm_90a")
def tile(a: Global[bf16, M, K], c: GlobalOut[f32, R, N]):
    grid(1)
    at = Shared[bf16, 128, {k}](swizzle={swizzle})
    bt = Shared[bf16, 64, {k}](swizzle={swizzle})
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("mma", warpgroups=1):
        with one_thread():
            expect_bytes(full, at, bt)
            tma_load(at, a[0:+128, 0:+{k}], full)
            tma_load(bt, a[0:+64, 0:+{k}], full)
        wait(full, 0)
        acc = zeros(f32, 64, 64, layout="wgmma")
        for j in range(3):
            wgmma_fence()
            acc = wgmma(at[{row}:+64, :], bt, acc)
            wgmma_commit()
        wgmma_wait(0)
        store(c[0:+64, 0:+64], acc, vector=2)
"""


def instance_of(registry: Registry, swizzle: int = 128, row: int = 0) -> Instance:
    k = swizzle // 2
    kernel = parse(KERNEL.format(swizzle=swizzle, k=k, row=row))
    return instantiate(kernel, {"M": 128, "R": 64, "N": 64, "K": k}, primitives=registry.primitives)


@pytest.mark.parametrize(("span", "mode", "stride"), [(128, 1, 1024), (64, 2, 512), (32, 3, 256)])
def test_descriptor_fields(registry: Registry, span: int, mode: int, stride: int) -> None:
    """PTX ISA, "Matrix-descriptor": 14-bit fields from bits 0, 16 and 32, swizzle mode in bits 62 and 63."""
    source = generate(instance_of(registry, span)).source
    text = re.search(rf"cake_descriptor_{span}\(unsigned address\) {{\s+return ([^;]+);", source)
    assert text is not None
    address = 0x12340
    value = eval(
        re.sub(r"(\d)(?:ull|u)\b", r"\1", text[1].replace("0x3ffffu", "0x3ffff")), {"address": address}
    )
    assert value & 0x3FFF == address >> 4
    assert value >> 32 & 0x3FFF == stride >> 4
    assert value >> 46 == mode << 16


def test_k_advances_by_32_bytes_inside_the_span(registry: Registry) -> None:
    source = generate(instance_of(registry)).source
    steps = re.findall(r"cake_wgmma_m64n64k16_bf16\(acc, \w+ \+ (\d), \w+ \+ (\d)\);", source)
    assert steps == [("0", "0"), ("2", "2"), ("4", "4"), ("6", "6")]


def test_a_wait_after_the_loop_holds_the_accumulators(registry: Registry) -> None:
    source = generate(instance_of(registry)).source
    after = source[source.index("wgmma.wait_group") :]
    assert "cake_keep_32(acc);" in after
    assert re.search(r'asm volatile\("" : "\+f"\(d\[0\]\), .*"\+f"\(d\[31\]\)', source)


def test_windows_start_at_groups_of_eight_rows(registry: Registry) -> None:
    assert run(instance_of(registry, row=8)).facts.findings == []
    [found] = run(instance_of(registry, row=4)).facts.findings
    assert isinstance(found, facts.Misaligned)
    assert (found.primitive, found.bytes) == ("wgmma", 1024)
