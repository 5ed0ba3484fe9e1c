"""Buffers over the same bytes: placement, conflicts byte by byte, one storage, generated addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cake.codegen import generate
from cake.diagnostics import KernelErrors
from cake.ir import parse, print_kernel
from cake.ir.instance import Instance, instantiate
from cake.ir.layouts import SWIZZLES, swizzle_offset
from cake.ir.types import Buffer, DType
from cake.machine.effects import Box, Region
from cake.machine.explore import explore
from cake.machine.memory import Memory
from cake.machine.overlays import footprint
from cake.plugins import Registry
from cake.verify import check

ANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
HEAD = """
@kernel(arch="sm_80")
def k(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
"""
ROLE = """
    with role("row", warps=1):
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
"""


def instance(registry: Registry, declarations: str) -> Instance:
    lines = "".join(f"    {line}\n" for line in declarations.split("; "))
    return instantiate(parse(HEAD + lines + ROLE), {"N": 32}, primitives=registry.primitives)


# --- placement ----------------------------------------------------------------------------------------------


def test_overlays_take_no_bytes_of_their_own(registry: Registry) -> None:
    text = "a = Shared[bf16, 64, 64](swizzle=128); b = Shared[f32, 32, 32](overlay=a, offset=4096)"
    text += "; c = Shared[f32, 8]"
    placed = instance(registry, text)
    assert {n: b.offset for n, b in placed.buffers.items() if b.space == "shared"} == {
        "a": 0,
        "b": 4096,
        "c": 8192,
    }
    assert placed.shared_bytes == 8192 + 32
    assert parse(print_kernel(placed.kernel)) == placed.kernel


def test_overlays_of_overlays_add_up(registry: Registry) -> None:
    text = (
        "z = Shared[f32, 8](swizzle=32); a = Shared[f32, 1024]; b = Shared[f32, 512](overlay=a, offset=1024)"
    )
    text += "; c = Shared[bf16, 8, 64](swizzle=128, overlay=b, offset=1024)"
    buffers = instance(registry, text).buffers
    # What lies under a swizzled buffer starts where a swizzle pattern may.
    assert buffers["a"].offset % 1024 == 0
    assert buffers["c"].offset == buffers["a"].offset + 2048


WRONG = {
    "nothing below": "b = Shared[f32, 8](overlay=a)",
    "declared after": "b = Shared[f32, 8](overlay=a); a = Shared[f32, 8]",
    "a tensor": "b = Shared[f32, 8](overlay=x)",
    "itself": "b = Shared[f32, 8](overlay=b)",
    "too large": "a = Shared[f32, 8]; b = Shared[f32, 16](overlay=a)",
    "past the end": "a = Shared[f32, 64]; b = Shared[f32, 64](overlay=a, offset=128)",
    "off the alignment": "a = Shared[f32, 64]; b = Shared[f32, 8](overlay=a, offset=64)",
    "off the swizzle": "a = Shared[f32, 640]; b = Shared[bf16, 8, 64](swizzle=128, overlay=a, offset=512)",
    "before the start": "a = Shared[f32, 64]; b = Shared[f32, 8](overlay=a, offset=0 - 128)",
}


@pytest.mark.parametrize("name", WRONG)
def test_impossible_overlays_are_refused_once(name: str, registry: Registry) -> None:
    with pytest.raises(KernelErrors) as refused:
        instance(registry, WRONG[name])
    assert [d.code for d in refused.value.diagnostics] == ["type/overlay"]


@pytest.mark.parametrize("options", ["offset=128", "overlay=a[0]", "overlay=8", "over=a"])
def test_an_overlay_is_written_one_way(options: str) -> None:
    with pytest.raises(KernelErrors) as refused:
        parse(HEAD + f"    a = Shared[f32, 64]\n    b = Shared[f32, 8]({options})\n" + ROLE)
    assert [d.code for d in refused.value.diagnostics] == ["syntax/declaration"]


def test_both_names_have_one_address_in_the_generated_text(registry: Registry) -> None:
    text = """
@kernel(arch="sm_80")
def k(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    a = Shared[f32, 32]
    b = Shared[f32, 2, 16](overlay=a)
    with role("row", warps=1):
        store(a[:], load(x[:], vector=1, fill=0.0), vector=1)
        cta_sync()
        store(y[0:+16], load(b[1, :], vector=1, fill=0.0), vector=1)
        store(y[16:+16], load(b[0, :], vector=1, fill=0.0), vector=1)
"""
    assert check(parse(text), registry, dims={"N": 32}).diagnostics == ()
    source = generate(instantiate(parse(text), {"N": 32}, primitives=registry.primitives)).source
    assert "const unsigned a = cake_base;" in source
    assert "const unsigned b = cake_base;" in source


# --- bytes --------------------------------------------------------------------------------------------------


@st.composite
def buffers(draw: st.DrawFn) -> Buffer:
    dtype = draw(st.sampled_from([DType.bf16, DType.f32, DType.e4m3]))
    swizzle = draw(st.sampled_from(SWIZZLES))
    row = draw(st.sampled_from([swizzle, 2 * swizzle] if swizzle else [4, 24, 128, 136]))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 9)), row // dtype.bytes)
    offset = 1024 * draw(st.integers(0, 1))
    return Buffer("b", "shared", dtype, shape, swizzle=swizzle, offset=offset)


@st.composite
def boxes(draw: st.DrawFn, shape: tuple[int, ...]) -> Box:
    starts = [draw(st.integers(0, extent - 1)) for extent in shape]
    return tuple((a, draw(st.integers(1, extent - a))) for a, extent in zip(starts, shape, strict=True))


def bytes_of(buffer: Buffer, box: Box) -> set[int]:
    """One byte after the other."""
    out = set()
    ranges = [range(a, a + n) for a, n in box]
    for i in ranges[0]:
        for j in ranges[1]:
            for k in ranges[2]:
                at = ((i * buffer.shape[1] + j) * buffer.shape[2] + k) * buffer.dtype.bytes
                out |= {
                    buffer.offset + swizzle_offset(at + b, buffer.swizzle) for b in range(buffer.dtype.bytes)
                }
    return out


@given(st.data())
def test_a_footprint_is_the_bytes_of_the_access(data: st.DataObject) -> None:
    buffer = data.draw(buffers())
    box = data.draw(boxes(buffer.shape))
    bits = footprint(buffer, box)
    assert {i for i in range(bits.bit_length()) if bits >> i & 1} == bytes_of(buffer, box)


VIEWS = "a = Shared[bf16, 16, 64](swizzle=128); b = Shared[f32, 8, 32](overlay=a, offset=1024)"
VIEWS += (
    "; c = Shared[bf16, 2, 8, 64](swizzle=128, overlay=a); d = Shared[e4m3, 16, 32](swizzle=32, overlay=b)"
)


@ANY
@given(st.data())
def test_values_lie_where_the_hardware_has_them(registry: Registry, data: st.DataObject) -> None:
    """Writes through any of the names, against one array of bytes."""
    placed = instance(registry, VIEWS)
    memory = Memory(placed, {"x": np.zeros(32, np.float32)})
    model = np.full(2048, 0xFF, np.uint8)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))

    def window(name: str) -> tuple[Region, np.ndarray[Any, Any]]:
        buffer = placed.buffers[name]
        box = data.draw(boxes(buffer.shape))
        region = Region(buffer, tuple(a for a, _ in box), tuple(n for _, n in box))
        offset = np.arange(buffer.bytes // buffer.dtype.bytes) * buffer.dtype.bytes
        start = np.array([swizzle_offset(int(o), buffer.swizzle) for o in offset]).reshape(buffer.shape)
        first = start[tuple(slice(a, a + n) for a, n in box)] + buffer.offset
        return region, first[..., None] + np.arange(buffer.dtype.bytes)

    for _ in range(4):
        region, at = window(data.draw(st.sampled_from("abcd")))
        values = rng.integers(0, 256, at.shape, dtype=np.uint8)
        model[at] = values
        memory.write(region, values.view(region.buffer.dtype.numpy)[..., 0])
    region, at = window(data.draw(st.sampled_from("abcd")))
    got = np.ascontiguousarray(memory.read(region))
    assert np.array_equal(got.view(np.uint8).reshape(at.shape), model[at])


MIXED = """
@kernel(arch="sm_80")
def turns(x: Global[f32, M, N], y: GlobalOut[f32, M, N], z: GlobalOut[bf16, M, N]):
    grid(M)
    wide = Shared[f32, 2, 128]
    narrow = Shared[bf16, 128](overlay=wide, offset=512)
    mixed = Shared[bf16, 4, 64](swizzle=128, overlay=wide)
    with role("row", warps=4):
        store(wide[1, 0:+N], load(x[block, :], vector=1, fill=0.0), vector=1)
        cta_sync()
        v = load(wide[1, 0:+N], vector=1, fill=0.0)
        cta_sync()
        store(narrow[0:+N], cast(v, bf16), vector=1)
        {sync}
        w = load(narrow[64:+64], vector=1, fill=0.0)
        cta_sync()
        store(mixed[3, 0:+64], cast(load(x[block, 0:+64], vector=1, fill=0.0), bf16), vector=1)
        cta_sync()
        store(z[block, 0:+64], load(mixed[3, 0:+64], vector=1, fill=0.0), vector=1)
        store(z[block, 64:+64], w, vector=1)
        store(y[block, :], v, vector=1)
"""


def test_every_schedule_gives_the_values_of_one_buffer_after_the_other(registry: Registry) -> None:
    x = np.random.default_rng(5).standard_normal((3, 128), dtype=np.float32)
    for sync, words in (("cta_sync()", ""), ("pass", "other values of z")):
        text = MIXED.format(sync=sync)
        placed = instantiate(parse(text), {"M": 3, "N": 128}, primitives=registry.primitives)
        want = {"y": x, "z": x.astype(placed.buffers["z"].dtype.numpy)}
        fault = explore(placed, {"x": x}, schedules=16, expected=want).fault(want)
        assert words in fault
        assert (
            bool(fault)
            == bool(words)
            == bool(check(parse(text), registry, dims={"M": 3, "N": 128}).diagnostics)
        )


# --- facts --------------------------------------------------------------------------------------------------

TWO_ROLES = """
@kernel(arch="sm_80")
def k(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    a = Shared[f32, 128]
    b = Shared[bf16, {size}](overlay=a, offset=256)
    with role("left", warps=1):
        for i in range({words} // 32):
            store(a[i * 32:+32], load(x[0:+32], vector=1), vector=1)
    with role("right", warps=1):
        for i in range({size} // 32):
            store(b[i * 32:+32], cast(load(x[0:+32], vector=1), bf16), vector=1)
        store(y[0:+32], load(x[0:+32], vector=1), vector=1)
"""


@pytest.mark.parametrize(("words", "size", "codes"), [(64, 128, set()), (96, 128, {"sync/shared-race"})])
def test_a_race_between_names_needs_a_common_byte(
    registry: Registry, words: int, size: int, codes: set[str]
) -> None:
    said = check(parse(TWO_ROLES.format(words=words, size=size)), registry, dims={"N": 32}).diagnostics
    assert {d.code for d in said} == codes


PARTIAL = """
@kernel(arch="sm_80")
def k(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    a = Shared[f32, 64]
    b = Shared[bf16, 128](overlay=a)
    with role("row", warps=1):
        for i in range(2):
            store(a[i * 32:+32], load(x[0:+32], vector=1), vector=1)
        store(b[{first}:+32], cast(load(x[0:+32], vector=1), bf16), vector=1)
        store(y[0:+32], load(a[32:+32], vector=1), vector=1)
"""


@pytest.mark.parametrize(("first", "codes"), [(32, []), (33, ["mem/overlapping-lifetimes"])])
def test_a_value_is_lost_with_its_first_byte(registry: Registry, first: int, codes: list[str]) -> None:
    said = check(parse(PARTIAL.format(first=first)), registry, dims={"N": 32}).diagnostics
    assert [d.code for d in said] == codes


def test_bytes_written_through_one_name_are_not_written_for_another_dtype(registry: Registry) -> None:
    text = """
@kernel(arch="sm_80")
def k(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    a = Shared[f32, 32]
    same = Shared[f32, 2, 16](overlay=a)
    other = Shared[bf16, 64](overlay=a)
    with role("row", warps=1):
        store(a[:], load(x[:], vector=1), vector=1)
        store(y[0:+16], load(same[1, :], vector=1, fill=0.0), vector=1)
        store(y[16:+16], cast(load(other[0:+16], vector=1, fill=0.0), f32), vector=1)
"""
    said = check(parse(text), registry, dims={"N": 32}).diagnostics
    assert [(d.code, d.primary.span.line) for d in said] == [("mem/overlapping-lifetimes", 11)]


def test_reuse_across_iterations_is_ordered_by_what_the_kernel_says(registry: Registry) -> None:
    """Each pass begins with the wide buffer where the last one ended with the narrow one."""
    text = """
@kernel(arch="sm_80")
def k(x: Global[f32, N], y: GlobalOut[f32, M]):
    grid(1)
    a = Shared[f32, 128]
    b = Shared[bf16, 128](overlay=a)
    with role("row", warps=4):
        for i in range(3):
            store(a[:], load(x[:], vector=1, fill=0.0), vector=1)
            cta_sync()
            v = reduce_sum(load(a[0:+32]))
            cta_sync()
            store(b[warp * 32], cast(v, bf16))
            cta_sync()
            store(y[warp], reduce_sum(cast(load(b[32:+1]), f32)))
            {sync}
"""
    for sync, codes in (("cta_sync()", []), ("pass", ["sync/shared-race"])):
        said = check(parse(text.format(sync=sync)), registry, dims={"N": 128, "M": 4}).diagnostics
        assert [d.code for d in said] == codes
