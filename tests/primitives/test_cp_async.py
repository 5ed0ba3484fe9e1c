"""cp_async's text copies each chunk of a window once, to where layout and swizzle say it belongs."""

from __future__ import annotations

import re

import pytest

from cake.codegen import generate
from cake.ir import parse
from cake.ir.instance import instantiate
from cake.ir.layouts import LANES, swizzle_offset
from cake.plugins import Registry

KERNEL = """
@kernel(arch="sm_80")
def stage(x: Global[bf16, M, N]):
    grid(1)
    s = Shared[bf16, 2, {rows}, {columns}](swizzle={swizzle})
    with role("all", warps={warps}):
        cp_async(s[1], x[8:+{rows}, 16:+{columns}])
        cp_async_commit()
        cp_async_wait(0)
"""
CASES = {
    "whole rows a turn": (64, 32, 64, 4),
    "whole rows, a last turn of fewer": (24, 64, 128, 4),
    "a row longer than a turn": (6, 512, 0, 1),
    "rows that turns cut": (10, 24, 0, 2),
    "one turn, more threads than chunks": (4, 32, 64, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_every_chunk_is_copied_once(registry: Registry, name: str) -> None:
    rows, columns, swizzle, warps = CASES[name]
    text = KERNEL.format(rows=rows, columns=columns, swizzle=swizzle, warps=warps)
    instance = instantiate(parse(text), {"M": 256, "N": 1024}, primitives=registry.primitives)
    source = re.sub(r"#line.*\n", "", generate(instance).source)
    turns = int(re.search(r"i_ < (\d+)", source)[1])  # type: ignore[index]
    names = re.findall(r"const int (\w)_ = (.+?)(?:, (k)_ = (.+?))?;", source)
    guard = re.search(r"if \((.* < \d+)\) \{", source.split("i_ = 0")[1])
    to, at = re.search(r"cake_cp_async_16\((.+), x \+ (.+), 16\);", source).groups()  # type: ignore[union-attr]
    copied: dict[int, int] = {}
    for i in range(turns):
        for thread in range(warps * LANES):
            env: dict[str, object] = {"i_": i, "cake_thread": thread, "s": 0}
            env[f"cake_swizzle_{swizzle}"] = lambda offset: swizzle_offset(offset, swizzle)
            for first, value, second, other in names:
                env[f"{first}_"] = eval(value.replace("/", "//"), env)
                if second:
                    env[f"{second}_"] = eval(other.replace("/", "//"), env)
            if guard is None or eval(guard[1], env):
                element = eval(at, env)
                assert element not in copied
                copied[element] = eval(to, env)
    assert copied == {
        (8 + row) * 1024 + 16 + column: swizzle_offset(((rows + row) * columns + column) * 2, swizzle)
        for row in range(rows)
        for column in range(0, columns, 8)
    }
