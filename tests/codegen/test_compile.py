"""Compiling: what ptxas reports, errors at the kernel's lines, the cache, children with a deadline."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from cake.codegen.compile import Compiled, compile_source, nvrtc_version
from cake.codegen.parallel import Job, compile_many
from cake.diagnostics import KernelErrors, render

KERNEL = """
#line 3 "{path}"
extern "C" __global__ void __launch_bounds__(128, 1) kernel(float* __restrict__ x) {{
    __shared__ float sums[32];
    sums[threadIdx.x % 32] = x[threadIdx.x];
    __syncthreads();
#line 5
    {statement}
}}
"""
TEXT = "@kernel(...)\ndef kernel(x):\n    grid(1)\n\n    store(x[0], sums)\n"
GOOD = KERNEL.format(path="k.cake", statement="x[0] = sums[3];")
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) kernel(float* x, int n) {
    float v[96];
    #pragma unroll
    for (int i = 0; i < 96; ++i) v[i] = x[i * 1024 + threadIdx.x];
    for (int j = 0; j < n; ++j) {
        #pragma unroll
        for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i + 1) % 96] + x[j];
    }
    #pragma unroll
    for (int i = 0; i < 96; ++i) x[i * 1024 + threadIdx.x] = v[i];
}
"""


@pytest.fixture
def kernel_file(tmp_path: Path) -> Path:
    path = tmp_path / "k.cake"
    path.write_text(TEXT)
    return path


def test_nvrtc_is_new_enough_to_allocate_registers_well() -> None:
    assert nvrtc_version() >= (13, 3)


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_resources_are_reported_for_every_architecture(arch: str) -> None:
    compiled = compile_source(GOOD, arch)
    assert compiled.cubin.startswith(b"\x7fELF")
    assert compiled.arch == arch
    assert 4 <= compiled.registers <= 64
    # Blackwell keeps a kilobyte of shared memory of every kernel for itself.
    assert compiled.static_shared_bytes in (128, 128 + 1024)
    assert compiled.spill_bytes == compiled.stack_bytes == 0


def test_spills_are_reported() -> None:
    compiled = compile_source(SPILLING, "sm_80")
    assert compiled.registers == 32
    assert compiled.spill_store_bytes > 0
    assert compiled.spill_load_bytes > 0
    assert compiled.spill_bytes == compiled.spill_store_bytes + compiled.spill_load_bytes
    assert compiled.stack_bytes > 0


def test_the_registers_of_setmaxnreg_are_what_counts() -> None:
    body = GOOD.replace("__shared__", 'asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); __shared__')
    assert compile_source(body, "sm_90a").registers == 240


def test_what_ptxas_ignores_is_noted() -> None:
    """setmaxnreg without a register cap at entry has no effect; ptxas says so and goes on."""
    body = GOOD.replace("__launch_bounds__(128, 1)", "").replace(
        "__shared__", 'asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); __shared__'
    )
    assert any("setmaxnreg" in note for note in compile_source(body, "sm_90a").notes)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("x[0] = nothing;", 'identifier "nothing" is undefined'),
        ('asm volatile("foo.bar %0, 1;" :: "r"(1));', "Not a name of any known instruction: 'foo'"),
        ('asm volatile("mov.u64 %0, 1;" :: "r"(1));', "Arguments mismatch for instruction 'mov'"),
    ],
)
def test_errors_stand_at_the_kernels_line(kernel_file: Path, statement: str, words: str) -> None:
    """Of the compiler, which counts lines of C++, and of the assembler, which counts lines of PTX."""
    with pytest.raises(KernelErrors) as refused:
        compile_source(KERNEL.format(path=kernel_file, statement=statement), "sm_90a", path=str(kernel_file))
    diagnostics = refused.value.diagnostics
    assert {d.code for d in diagnostics} == {"compile/nvrtc"}
    assert {d.primary.span.line for d in diagnostics} == {5}
    assert any(words in d.message for d in diagnostics)
    assert "    store(x[0], sums)" in render(diagnostics, refused.value.source)


def test_an_error_inside_a_helper_stands_where_it_was_called(kernel_file: Path) -> None:
    helper = '__device__ __forceinline__ void helper(int i) {\n    asm volatile("foo %0;" :: "r"(i));\n}\n'
    source = helper + KERNEL.format(path=kernel_file, statement="helper(1);")
    with pytest.raises(KernelErrors) as refused:
        compile_source(source, "sm_90a", path=str(kernel_file))
    assert {d.primary.span.line for d in refused.value.diagnostics} == {5}


def test_an_unknown_architecture_is_refused_with_what_the_compiler_says() -> None:
    with pytest.raises(KernelErrors, match="gpu-architecture"):
        compile_source(GOOD, "sm_12")


def entry(cache: Path) -> Path:
    (folder,) = (path for path in cache.glob("*/*") if path.is_dir())
    return folder


def test_the_cache_is_keyed_by_text_and_architecture(tmp_path: Path) -> None:
    for source, arch in ((GOOD, "sm_80"), (GOOD, "sm_90a"), (GOOD + "\n", "sm_80"), (GOOD, "sm_80")):
        compile_source(source, arch, cache_dir=tmp_path)
    assert len([path for path in tmp_path.glob("*/*") if path.is_dir()]) == 3


def test_a_hit_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_source(GOOD, "sm_80", cache_dir=tmp_path)
    monkeypatch.setattr("cake.codegen.compile._compile", lambda *_: pytest.fail("compiled again"))
    assert compile_source(GOOD, "sm_80", cache_dir=tmp_path) == first


@pytest.mark.parametrize("damage", ["truncate", "not json", "other schema", "missing"])
def test_a_damaged_entry_is_compiled_anew(tmp_path: Path, damage: str) -> None:
    first = compile_source(GOOD, "sm_80", cache_dir=tmp_path)
    folder = entry(tmp_path)
    meta = folder / "meta.json"
    match damage:
        case "truncate":
            (folder / "kernel.cubin").write_bytes(first.cubin[:100])
        case "not json":
            meta.write_text('{"arch": ')
        case "other schema":
            meta.write_text(json.dumps({**json.loads(meta.read_text()), "more": 1}))
        case "missing":
            (folder / "kernel.cubin").unlink()
    assert compile_source(GOOD, "sm_80", cache_dir=tmp_path) == first
    assert (folder / "kernel.cubin").read_bytes() == first.cubin


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert compile_source(GOOD, "sm_80", cache_dir=blocked).registers > 0


def test_no_half_entry_stays_behind(tmp_path: Path) -> None:
    compile_source(GOOD, "sm_80", cache_dir=tmp_path)
    assert {path.name for path in tmp_path.glob("*/*")} == {entry(tmp_path).name}


def test_many_compile_at_once_in_order(tmp_path: Path, kernel_file: Path) -> None:
    broken = KERNEL.format(path=kernel_file, statement="oops;")
    jobs = [
        Job(GOOD, "sm_80"),
        Job(broken, "sm_80", str(kernel_file)),
        Job(GOOD, "sm_90a"),
        Job(GOOD, "sm_100a"),
    ]
    first, refused, *others = compile_many(jobs, 2, cache_dir=tmp_path)
    assert isinstance(first, Compiled)
    assert first == compile_source(GOOD, "sm_80")
    assert isinstance(refused, KernelErrors)
    assert refused.diagnostics[0].primary.span.line == 5
    assert "store(x[0], sums)" in render(refused.diagnostics, refused.source)
    assert [o.arch for o in others if isinstance(o, Compiled)] == ["sm_90a", "sm_100a"]
    assert compile_many([]) == []


CHILD = """
import json, os, sys, time
for line in sys.stdin:
    order = json.loads(line)
    if order["source"] == "hang":
        time.sleep(60)
    if order["source"] == "die":
        sys.exit("no memory left")
    print(json.dumps({"refused": [["compile/nvrtc", order["source"], 1, 0, 1]], "text": "x"}), flush=True)
"""


def test_a_compiler_that_hangs_or_dies_costs_one_job() -> None:
    began = time.monotonic()
    jobs = [Job(word, "sm_80") for word in ("one", "hang", "die", "two")]
    results = compile_many(jobs, 1, deadline=2.0, command=(sys.executable, "-c", CHILD))
    assert time.monotonic() - began < 20
    codes = [r.diagnostics[0].code for r in results if isinstance(r, KernelErrors)]
    assert codes == ["compile/nvrtc", "compile/deadline", "compile/crashed", "compile/nvrtc"]
    assert "no memory left" in str(results[2])
