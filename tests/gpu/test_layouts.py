"""Layouts on a real GPU: what tensor cores read through descriptors, and what overlaid buffers hold."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from cake.codegen import LaunchPlan, compile_source, generate
from cake.codegen.plan import PointerParam, TensorSpec
from cake.device.client import DeviceClient
from cake.errors import MissingEnvironment
from cake.ir import parse
from cake.ir.instance import instantiate
from cake.ir.layouts import SWIZZLES, swizzle_offset
from cake.ir.layouts.descriptors import Descriptor, Major, matrix_descriptor
from cake.ir.types import Buffer, DType, RegionType
from cake.machine.engine import run
from cake.plugins import Registry

pytestmark = pytest.mark.gpu

BF16 = np.dtype(ml_dtypes.bfloat16)
M, N, K = 64, 128, 64
STEP = 16

# A and B come as the bytes that lie in shared memory; one warpgroup multiplies them and stores its fragment.
PRODUCT = """
extern "C" __global__ void __launch_bounds__(128, 1)
kernel(const int* __restrict__ a, const int* __restrict__ b, float* __restrict__ c) {{
    extern __shared__ __align__(1024) unsigned char memory[];
    unsigned base = (static_cast<unsigned>(__cvta_generic_to_shared(memory)) + 1023u) & ~1023u;
    for (int i = threadIdx.x; i < 2048; i += 128)
        asm volatile("st.shared.b32 [%0], %1;" :: "r"(base + 4 * i), "r"(a[i]) : "memory");
    for (int i = threadIdx.x; i < 4096; i += 128)
        asm volatile("st.shared.b32 [%0], %1;" :: "r"(base + 8192 + 4 * i), "r"(b[i]) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    float d[64] = {{}};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    {steps}
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i]) :: "memory");
    int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16 + lane / 4;
    for (int i = 0; i < 64; ++i)
        c[(first + i % 4 / 2 * 8) * {n} + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}}
"""
REGISTERS = ", ".join(f"%{i}" for i in range(64))
OUTPUTS = ", ".join(f'"+f"(d[{i}])' for i in range(64))
STEP_TEXT = (
    'asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {{{registers}}}, %64, %65, 1, 1, 1,'
    ' {a_mn}, {b_mn};" : {outputs} : "l"({a}ull | (base + {a_at} & 0x3ffffu) >> 4),'
    ' "l"({b}ull | (base + {b_at} & 0x3ffffu) >> 4) : "memory");'
)


@pytest.fixture(scope="module")
def client() -> Iterator[DeviceClient]:
    with DeviceClient() as made:
        try:
            arch = made.probe().arch
        except MissingEnvironment as missing:
            pytest.skip(str(missing))
        if arch != "sm_90a":
            pytest.skip(f"{arch} has no wgmma")
        yield made


def operand(matrix: np.ndarray, major: Major, swizzle: int) -> tuple[np.ndarray, Descriptor]:
    """The bytes of an (M or N) x K matrix in a buffer of panels, and the descriptor of the whole."""
    lines = matrix if major == "K" else matrix.T
    width = (swizzle or 16) // 2
    panels = lines.shape[1] // width
    shape = (panels, lines.shape[0], width)
    logical = np.ascontiguousarray(lines.reshape(shape[1], panels, width).transpose(1, 0, 2)).view(np.uint16)
    image = np.zeros(matrix.size, np.uint16)
    at = [swizzle_offset(2 * i, swizzle) // 2 for i in range(matrix.size)]
    image[at] = logical.reshape(-1)
    found = matrix_descriptor(
        RegionType(Buffer("s", "shared", DType.bf16, shape, swizzle=swizzle), shape, shape), major
    )
    assert isinstance(found, Descriptor)
    return image.view(np.int32), found


ONE_SIDE = [(major, swizzle) for major in ("K", "MN") for swizzle in SWIZZLES]
CASES = [(side, ("K", 128)) for side in ONE_SIDE] + [(("MN", 128), side) for side in ONE_SIDE]


@pytest.mark.parametrize(("left", "right"), CASES)
def test_tensor_cores_read_what_the_descriptors_say(
    client: DeviceClient, left: tuple[Major, int], right: tuple[Major, int]
) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-8, 9, (rows, K)).astype(BF16) for rows in (M, N))
    (a_image, a_at), (b_image, b_at) = operand(a, *left), operand(b, *right)
    steps = "\n    ".join(
        STEP_TEXT.format(
            registers=REGISTERS,
            outputs=OUTPUTS,
            a=a_at.wgmma_bits,
            b=b_at.wgmma_bits,
            a_at=a_at.ahead(k),
            b_at=8192 + b_at.ahead(k),
            a_mn=int(a_at.major == "MN"),
            b_mn=int(b_at.major == "MN"),
        )
        for k in range(0, K, STEP)
    )
    tensors = {
        "a": TensorSpec("i32", a_image.shape, "in"),
        "b": TensorSpec("i32", b_image.shape, "in"),
        "c": TensorSpec("f32", (M, N), "out"),
    }
    params = tuple(PointerParam(name) for name in tensors)
    plan = LaunchPlan("kernel", "sm_90a", (1, 1, 1), (128, 1, 1), (1, 1, 1), 24576 + 1024, params, tensors)
    cubin = compile_source(PRODUCT.format(steps=steps, n=N), "sm_90a").cubin
    outputs, findings = client.run(cubin, plan, {"a": a_image, "b": b_image})
    assert findings == []
    np.testing.assert_array_equal(outputs["c"], a.astype(np.float32) @ b.astype(np.float32).T)


OVERLAID = """
@kernel(arch="sm_80")
def turns(x: Global[f32, M, N], y: GlobalOut[f32, M, N], z: GlobalOut[bf16, M, N]):
    require(N % 4 == 0)
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
        cta_sync()
        w = load(narrow[0:+N], vector=1, fill=0.0)
        cta_sync()
        store(mixed[0, 0:+64], cast(load(x[block, 0:+64], vector=1, fill=0.0), bf16), vector=1)
        store(mixed[3, 0:+64], cast(load(x[block, 0:+64], vector=1, fill=0.0), bf16), vector=1)
        cta_sync()
        u = load(mixed[3, 0:+64], vector=1, fill=0.0)
        store(z[block, :], w, vector=1)
        store(y[block, :], v, vector=1)
        store(y[block, 0:+64], cast(u, f32), vector=1)
"""


def test_overlaid_buffers_hold_what_the_machine_says(client: DeviceClient, registry: Registry) -> None:
    instance = instantiate(parse(OVERLAID), {"M": 3, "N": 128}, primitives=registry.primitives, arch="sm_90a")
    inputs = {"x": np.random.default_rng(4).standard_normal((3, 128), dtype=np.float32)}
    on_machine = run(instance, inputs=inputs)
    assert on_machine.facts.findings == []
    built = generate(instance)
    outputs, findings = client.run(compile_source(built.source, "sm_90a").cubin, built.plan, inputs)
    assert findings == []
    for name in ("y", "z"):
        np.testing.assert_array_equal(
            np.asarray(outputs[name], np.float32), np.asarray(on_machine.outputs[name], np.float32)
        )
