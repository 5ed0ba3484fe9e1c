"""Generated CUDA: golden listings, determinism, lines that lead back to the kernel, no clash of names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cake.codegen import LaunchPlan, compile_source, generate
from cake.diagnostics import KernelErrors
from cake.ir import Instance, instantiate, parse
from cake.plugins import Registry
from tests.golden_kernels import GOLDEN

KERNELS = Path(__file__).parents[2] / "plugins" / "kernels"
LISTINGS = Path(__file__).parents[1] / "golden" / "cuda"
GEMM = {"M": 4095, "N": 1000, "K": 776}


def instance_of(name: str, registry: Registry) -> Instance:
    return GOLDEN[name].instance(registry)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_listing_is_the_golden_one(name: str, registry: Registry, pytestconfig: pytest.Config) -> None:
    listing = generate(instance_of(name, registry)).listing
    path = LISTINGS / f"{name}.cu"
    if pytestconfig.getoption("--write-snapshots"):
        path.write_text(listing)
    assert listing == path.read_text(), "`make snapshots` rewrites the golden listings; read the difference"


def test_no_golden_listing_is_stale() -> None:
    assert {path.stem for path in LISTINGS.glob("*")} == set(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_text_is_deterministic(name: str, registry: Registry) -> None:
    assert generate(instance_of(name, registry)) == generate(instance_of(name, registry))


@pytest.mark.parametrize("name", GOLDEN)
def test_every_line_of_the_body_leads_back_to_its_statement(name: str, registry: Registry) -> None:
    """The compiler counts lines up from each directive; what it counts must be a line of the kernel."""
    generated = generate(instance_of(name, registry))
    kernel_lines = generated.kernel.source.lines
    called = {}
    counted = 0
    for line in generated.source.split("\n"):
        directive = re.match(r"#line (\d+)", line)
        if directive:
            counted = int(directive.group(1))
            continue
        if counted and line.startswith("    "):
            assert counted <= len(kernel_lines)
            for helper, primitive in (
                ("cake_wait(", "wait("),
                ("cake_cp_async(", "cp_async("),
                ("__syncthreads", "cta_sync"),
            ):
                if helper in line:
                    called[primitive] = True
                    assert primitive in kernel_lines[counted - 1]
            counted += 1
    assert called


@pytest.mark.parametrize("name", GOLDEN)
def test_the_plan_survives_json(name: str, registry: Registry) -> None:
    plan = generate(instance_of(name, registry)).plan
    assert LaunchPlan.from_json(plan.to_json()) == plan
    with pytest.raises(ValueError, match="schema"):
        LaunchPlan.from_json({**plan.to_json(), "schema": 99})


def test_parameters_are_what_the_body_uses(registry: Registry) -> None:
    generated = generate(instance_of("gemm_sm90a", registry))
    kinds = [param.to_json()["kind"] for param in generated.plan.params]
    assert kinds == ["tensor_map"] * 3
    assert generated.source.count("__grid_constant__") == 3


CLASHES = """
@kernel(arch="sm_80")
def k(c: Global[f32, N], v: GlobalOut[f32, N]):
    grid(1)
    float = Shared[f32, 1]
    with role("row", warps=1):
        i = 0
        col_ = 1 + i
        cake_lane = 2 + col_
        m = load(c[:], vector=1, fill=0.0)
        store(float[0], warp_sum(m))
        r = cake_lane
        for k in range(r):
            m = m + 1.0
        store(v[:], m, vector=1)
"""


def test_authors_may_use_any_name(registry: Registry) -> None:
    instance = instantiate(parse(CLASHES), {"N": 40}, primitives=registry.primitives)
    generated = generate(instance)
    assert compile_source(generated.source, "sm_80").registers > 0


def test_an_error_of_the_compiler_is_shown_at_the_kernels_line(registry: Registry) -> None:
    instance = instance_of("softmax", registry)
    source = generate(instance).source
    broken = source.replace("__syncthreads();", "__sync_threads();", 1)
    with pytest.raises(KernelErrors) as refused:
        compile_source(broken, "sm_80", path="softmax.cake")
    (diagnostic,) = refused.value.diagnostics
    lines = (KERNELS / "softmax.cake").read_text().split("\n")
    assert diagnostic.code == "compile/nvrtc"
    assert "cta_sync()" in lines[diagnostic.primary.span.line - 1]


@pytest.mark.parametrize("tile", [(128, 128, 4), (128, 256, 3), (192, 128, 4)])
def test_wgmma_is_never_serialized(tile: tuple[int, int, int], registry: Registry) -> None:
    """C7510 and its kin mean that ptxas waits after each wgmma."""
    kernel = parse((KERNELS / "gemm_sm90a.cake").read_text(), "gemm_sm90a.cake")
    constants = dict(zip(("BM", "BN", "STAGES"), tile, strict=True))
    instance = instantiate(kernel, GEMM, constants, primitives=registry.primitives)
    compiled = compile_source(generate(instance).source, "sm_90a")
    assert compiled.notes == ()
    assert compiled.spill_bytes == 0


def test_the_cache_returns_what_was_compiled_and_survives_damage(registry: Registry, tmp_path: Path) -> None:
    source = generate(instance_of("softmax", registry)).source
    first = compile_source(source, "sm_80", cache_dir=tmp_path)
    assert compile_source(source, "sm_80", cache_dir=tmp_path) == first
    (stored,) = tmp_path.glob("*/*/kernel.cubin")
    stored.write_bytes(b"damaged")
    assert compile_source(source, "sm_80", cache_dir=tmp_path) == first
    assert stored.read_bytes() == first.cubin


ELECTION = """
@kernel(arch="sm_80")
def k(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    i = block
    with role("row", warps=8):
        with one_thread("warpgroup"):
            j = 1 + i
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
"""


@pytest.mark.parametrize(("arch", "test"), [("sm_80", "cake_lane == 0"), ("sm_90a", "cake_elect()")])
def test_one_thread_is_elected_as_the_architecture_can(arch: str, test: str, registry: Registry) -> None:
    instance = instantiate(parse(ELECTION), {"N": 256}, primitives=registry.primitives, arch=arch)
    source = generate(instance).source
    assert f"if (cake_rank % 4 == 0 && {test}) {{" in source
    assert compile_source(source, arch).notes == ()


BEHIND = """
@kernel(arch="sm_90a")
def k(y: GlobalOut[f32, N]):
    grid(1)
    with role("first", warps=4):
        setmaxnreg = 1
    with role("second", warps=4):
        i = 2
    cta_sync()
"""


def test_what_stands_behind_the_roles_follows_their_chain(registry: Registry) -> None:
    """As on the machine: roles first, then the statements of the top level, executed by all."""
    source = generate(instantiate(parse(BEHIND), {"N": 1}, primitives=registry.primitives)).source
    assert source.index("} else {") < source.index("int i = 2") < source.index("__syncthreads")
