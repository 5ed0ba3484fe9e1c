"""stmatrix puts every register of an accumulator where the layout and the swizzle say it belongs."""

from __future__ import annotations

import re

import pytest

from cake.codegen import generate
from cake.ir import parse
from cake.ir.instance import instantiate
from cake.ir.layouts import Accumulator, swizzle_offset
from cake.plugins import Registry

KERNEL = """
@kernel(arch="sm_90a")
def tile(y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[bf16, {shape}](swizzle={swizzle})
    with role("tile", {role}):
        stmatrix({window}, cast(zeros(f32, {rows}, {columns}, layout="{layout}"), bf16))
"""
CASES = {
    "a warpgroup, two panels": ("2, 128, 64", 128, "warpgroups=2", "s[:, warpgroup * 64:+64, :]", 64, 128),
    "a warpgroup, one panel of 32 columns": ("64, 32", 64, "warpgroups=1", "s", 64, 32),
    "a warp, two blocks of rows, an odd group": ("32, 24", 0, "warps=1", "s", 32, 24),
    "a warp, panels of 16 columns": ("3, 16, 16", 32, "warps=1", "s", 16, 48),
    "a warp, panels of 8 columns": ("2, 16, 8", 0, "warps=1", "s", 16, 16),
}


@pytest.mark.parametrize("name", CASES)
def test_every_register_lands_at_its_coordinate(registry: Registry, name: str) -> None:
    shape, swizzle, role, window, rows, columns = CASES[name]
    over = 4 if "groups" in role else 1
    layout = Accumulator(over)
    text = KERNEL.format(
        shape=shape,
        swizzle=swizzle,
        role=role,
        window=window,
        rows=rows,
        columns=columns,
        layout=layout.name,
    )
    instance = instantiate(parse(text), {"N": 1}, primitives=registry.primitives)
    source = generate(instance).source
    buffer = instance.buffers["s"]
    width, height = buffer.shape[-1], buffer.shape[-2]
    for rank in range(instance.warps):
        written = _stores(source, rank)
        first_row = rank // 4 * 64 if over == 4 else 0
        for lane in range(32):
            for register in range(layout.elements((rows, columns))):
                row, column = layout.coordinate((rows, columns), rank % over, lane, register)
                panel, inside = divmod(column, width)
                offset = ((panel * height + first_row + row) * width + inside) * 2
                assert written[lane, register] == swizzle_offset(offset, swizzle)
        assert len(set(written.values())) == rows * columns // over


def _stores(source: str, rank: int) -> dict[tuple[int, int], int]:
    """Byte offset at which the generated stores of warp `rank` put each (lane, register), by the PTX manual:
    lanes 8j .. 8j+7 name the rows of matrix j; lane t holds elements 2 (t % 4) and the next of row t / 4."""
    names = re.search(
        r"const int (\w+) = ([^;]+), (\w+) = ([^;]+);\n(?:#.*\n)?\s*asm volatile\(.stmatrix", source
    )
    assert names is not None
    out: dict[tuple[int, int], int] = {}
    for count, address, held in re.findall(
        r'stmatrix\.sync\.aligned\.m8n8\.x(\d)\.\S+ [^"]+" :: "r"\((.*?)\), ("r"\(\w+\[.*?) : "memory"',
        source,
    ):
        registers = [int(n) for n in re.findall(r"\[(\d+)\]", held)]
        assert len(registers) == int(count)
        for matrix, register in enumerate(registers):
            for lane in range(32):
                named = _evaluate(address, names.groups(), rank, 8 * matrix + lane // 4)
                for low in range(2):
                    out[lane, 2 * register + low] = named + (lane % 4) * 4 + low * 2
    return out


def _evaluate(address: str, names: tuple[str, ...], rank: int, lane: int) -> int:
    env = {"cake_rank": rank, "cake_lane": lane, "s": 0}
    for swizzle in (32, 64, 128):
        env[f"cake_swizzle_{swizzle}"] = lambda offset, span=swizzle: swizzle_offset(offset, span)
    row, row_text, half, half_text = names
    for name, text in ((row, row_text), (half, half_text)):
        env[name] = eval(_python(text), env)
    return int(eval(_python(address), env))


def _python(text: str) -> str:
    text = re.sub(r"static_cast<\w+>", "", text).replace("/", "//")
    return re.sub(r"\((\w+) \? (\w+) : (\w+)\)", r"(\2 if \1 else \3)", text)
