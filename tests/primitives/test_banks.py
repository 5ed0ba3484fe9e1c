"""Turns at the banks as primitives count them, against a simulation of where each lane's element lies."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cake.ir import nodes as n
from cake.ir import parse
from cake.ir.instance import instantiate
from cake.ir.layouts import LANES, SWIZZLES, Vector, swizzle_offset
from cake.kinds.primitive import Op
from cake.machine.effects import Banked, Region
from cake.plugins import Registry

ANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def banked(registry: Registry, text: str, name: str, start: tuple[int, ...], warp: int = 0) -> Banked:
    """What the only call of `name` says of its window `s[...]`, moved to `start`."""
    instance = instantiate(parse(text), {"N": 1}, primitives=registry.primitives)
    call = next(c for c in n.calls(instance.kernel.body) if c.name == name)
    site = instance.site(call)
    kind = site.region("window")
    args = {"window": Region(kind.buffer, start, kind.window), "vector": 0, "major": "K"}
    op = Op(site, args, warp)
    return next(e for e in instance.primitive(call).effects(op) if isinstance(e, Banked))


def turns(phases: list[list[int]]) -> int:
    """Each phase: the bytes wanted by lanes served together; a bank hands out one word a turn."""
    total = 0
    for wanted in phases:
        words = {byte // 4 for byte in wanted}
        total += max((sum(w % 32 == bank for w in words) for bank in range(32)), default=0)
    return total


def place(shape: tuple[int, ...], index: tuple[int, ...], size: int, swizzle: int) -> int:
    offset = sum(i * prod(shape[axis + 1 :]) for axis, i in enumerate(index)) * size
    return swizzle_offset(offset, swizzle)


@ANY
@given(st.data())
def test_matrices(registry: Registry, data: st.DataObject) -> None:
    columns = data.draw(st.sampled_from([16, 24, 32, 48, 64, 128, 136]))
    swizzle = data.draw(st.sampled_from([s for s in SWIZZLES if not s or columns * 2 % s == 0]))
    shape = (3, 64, columns)
    width = data.draw(st.sampled_from([w for w in (16, 32, 64) if w <= columns]))
    slot = data.draw(st.integers(0, 2))
    row = data.draw(st.integers(0, 32))
    column = 8 * data.draw(st.integers(0, (columns - width) // 8))
    found = banked(
        registry,
        f"""
@kernel(arch="sm_80")
def k(y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[bf16, 3, 64, {columns}](swizzle={swizzle})
    with role("all", warps=1):
        f = ldmatrix(s[0, 0:+32, 0:+{width}], layout="mma_a")
""",
        "ldmatrix",
        (slot, row, column),
    )
    phases = [
        [
            place(shape, (slot, row + at + i, column + chunk + j), 2, swizzle) + byte
            for i in range(8)
            for j in range(8)
            for byte in range(2)
        ]
        for at in range(0, 32, 8)
        for chunk in range(0, width, 8)
    ]
    assert found.traffic.wavefronts == turns(phases)
    assert found.traffic.least == len(phases)


@ANY
@given(st.data())
def test_rows_and_columns_held_as_vectors(registry: Registry, data: st.DataObject) -> None:
    rows, columns = data.draw(st.sampled_from([(32, 64), (80, 33), (64, 128), (40, 6)]))
    down = data.draw(st.booleans())
    dtype, size = data.draw(st.sampled_from([("f32", 4), ("bf16", 2)]))
    width = (
        1
        if down
        else data.draw(st.sampled_from([w for w in (1, 2, 4, 8) if columns % w == 0 and w * size <= 16]))
    )
    swizzle = data.draw(st.sampled_from([s for s in SWIZZLES if not s or columns * size % s == 0]))
    warps, warp = data.draw(st.sampled_from([(1, 0), (2, 1), (3, 2)]))
    fixed = data.draw(st.integers(0, (columns if down else rows) - 1))
    window = f"s[1, :, {fixed}]" if down else f"s[1, {fixed}, :]"
    found = banked(
        registry,
        f"""
@kernel(arch="sm_80")
def k(y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[{dtype}, 2, {rows}, {columns}](swizzle={swizzle})
    with role("all", warps={warps}):
        f = load({window}, vector={width}, fill=0.0)
""",
        "load",
        (1, 0, fixed) if down else (1, fixed, 0),
        warp,
    )
    length = rows if down else columns
    layout, together = Vector(width, warps), min(LANES, 128 // (width * size))
    phases = []
    for chunk in range(layout.chunks((length,))):
        for first in range(0, LANES, together):
            wanted = []
            for lane in range(first, first + together):
                for item in range(width):
                    (at,) = layout.coordinate((length,), warp, lane, chunk * width + item)
                    if at < length:
                        index = (1, at, fixed) if down else (1, fixed, at)
                        start = place((2, rows, columns), index, size, swizzle)
                        wanted += range(start, start + size)
            phases.append(wanted)
    assert found.traffic.wavefronts == turns(phases)
    assert found.traffic.least == sum(map(bool, phases))


@pytest.mark.parametrize("swizzle", [0, 128])
def test_panels_of_an_accumulator(registry: Registry, swizzle: int) -> None:
    """Two panels of 64 columns, 16 rows a warp: plain rows of 128 bytes collide eight to a bank."""
    text = f"""
@kernel(arch="sm_90a")
def k(y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[bf16, 2, 64, 64](swizzle={swizzle})
    with role("all", warpgroups=1):
        stmatrix(s, cast(zeros(f32, 64, 128, layout="wgmma"), bf16))
"""
    found = banked(registry, text, "stmatrix", (0, 0, 0), 3)
    assert found.traffic.least == 2 * 16
    assert found.traffic.wavefronts == 2 * 16 * (1 if swizzle else 8)
