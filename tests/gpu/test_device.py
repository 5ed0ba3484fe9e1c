"""The device half on a real GPU, on hand-written CUDA: arguments, tensor maps, findings, faults, time."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import ml_dtypes
import numpy as np
import pytest

from cake.codegen import LaunchPlan, compile_source
from cake.codegen.plan import PointerParam, TensorMapParam, TensorSpec
from cake.device.client import DeviceClient
from cake.device.driver import DeviceFault
from cake.device.probe import DeviceInfo
from cake.errors import MissingEnvironment

pytestmark = pytest.mark.gpu

BF16 = np.dtype(ml_dtypes.bfloat16)

ADD = """
extern "C" __global__ void kernel(const float* __restrict__ x, const float* __restrict__ y,
                                  float* __restrict__ z) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 1000) z[i] = x[i] + y[i];
}
"""

# One 64 x 64 tile a block: loaded by TMA with the 128-byte swizzle, read back through it by plain loads into
# `plain`, and stored by TMA from shared memory into `stored`.
COPY = r"""
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };

extern "C" __global__ void __launch_bounds__(128, 1)
kernel(unsigned short* __restrict__ plain, const __grid_constant__ CUtensorMap source,
       const __grid_constant__ CUtensorMap stored) {
    constexpr int M = 100, N = 72;
    extern __shared__ __align__(1024) unsigned char memory[];
    unsigned base = (static_cast<unsigned>(__cvta_generic_to_shared(memory)) + 1023u) & ~1023u;
    unsigned barrier = base + 8192;
    int row = blockIdx.x % 2 * 64, col = blockIdx.x / 2 * 64;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(barrier) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 8192;" :: "r"(barrier) : "memory");
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2, %3}], [%4];"
            :: "r"(base), "l"(&source), "r"(col), "r"(row), "r"(barrier) : "memory");
    }
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
        "@!done bra again;\n}" :: "r"(barrier) : "memory");
    for (int i = threadIdx.x; i < 64 * 64; i += 128) {
        int r = i / 64, c = i % 64;
        unsigned offset = r * 128 + c * 2;
        unsigned short value;
        offset ^= (offset >> 7 & 7) << 4;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(base + offset));
        if (row + r < M && col + c < N) plain[(row + r) * N + col + c] = value;
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile(
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
            :: "l"(&stored), "r"(col), "r"(row), "r"(base) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
"""

CLUSTER = """
extern "C" __global__ void kernel(int* __restrict__ z) {
    unsigned size, rank;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) z[blockIdx.x] = static_cast<int>(size * 10 + rank);
}
"""


@pytest.fixture(scope="module")
def client() -> Iterator[DeviceClient]:
    with DeviceClient() as made:
        try:
            made.probe()
        except MissingEnvironment as missing:
            pytest.skip(str(missing))
        yield made


@pytest.fixture(scope="module")
def info(client: DeviceClient) -> DeviceInfo:
    return client.probe()


@pytest.fixture
def hopper(info: DeviceInfo) -> str:
    if int(info.arch.removeprefix("sm_").rstrip("a")) < 90:
        pytest.skip(f"{info.arch} has no TMA")
    return info.arch


def vector_plan(arch: str, *, outputs: tuple[str, ...] = ("z",), size: int = 1000) -> LaunchPlan:
    tensors = {n: TensorSpec("f32", (size,), "out" if n in outputs else "in") for n in ("x", "y", "z")}
    params = tuple(PointerParam(name) for name in tensors)
    return LaunchPlan("kernel", arch, (8, 1, 1), (128, 1, 1), (1, 1, 1), 0, params, tensors)


def vectors(size: int = 1000) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(size, dtype=np.float32) for name in ("x", "y")}


def built(body: str, arch: str) -> bytes:
    return compile_source(body, arch).cubin


def test_the_device_states_its_facts(info: DeviceInfo) -> None:
    assert info.name
    assert info.sms > 0
    assert info.l2_bytes > 2**20
    assert info.clock_mhz > 500
    assert info.shared_per_block >= 99 * 1024


def test_vector_add(client: DeviceClient, info: DeviceInfo) -> None:
    inputs = vectors()
    outputs, findings = client.run(built(ADD, info.arch), vector_plan(info.arch), inputs)
    assert findings == []
    np.testing.assert_array_equal(outputs["z"], inputs["x"] + inputs["y"])


def test_tma_reads_and_writes_through_swizzled_maps(client: DeviceClient, hopper: str) -> None:
    shape, box = (100, 72), (64, 64)
    tensors = {
        "plain": TensorSpec("bf16", shape, "out"),
        "source": TensorSpec("bf16", shape, "in"),
        "stored": TensorSpec("bf16", shape, "out"),
    }
    params = (PointerParam("plain"), TensorMapParam("source", box, 128), TensorMapParam("stored", box, 128))
    plan = LaunchPlan("kernel", hopper, (4, 1, 1), (128, 1, 1), (1, 1, 1), 8192 + 16 + 1024, params, tensors)
    source = np.random.default_rng(1).standard_normal(shape).astype(BF16)
    outputs, findings = client.run(built(COPY, hopper), plan, {"source": source})
    assert findings == []
    np.testing.assert_array_equal(outputs["plain"].view(np.uint16), source.view(np.uint16))
    np.testing.assert_array_equal(outputs["stored"].view(np.uint16), source.view(np.uint16))


def test_large_dynamic_shared_memory_is_granted(client: DeviceClient, info: DeviceInfo) -> None:
    plan = vector_plan(info.arch)
    large = LaunchPlan.from_json({**plan.to_json(), "dynamic_shared_bytes": info.shared_per_block})
    outputs, findings = client.run(built(ADD, info.arch), large, vectors())
    assert findings == []
    assert np.isfinite(outputs["z"]).all()
    over = LaunchPlan.from_json({**plan.to_json(), "dynamic_shared_bytes": info.shared_per_block + 1})
    with pytest.raises(DeviceFault) as refused:
        client.run(built(ADD, info.arch), over, vectors())
    assert refused.value.code == "device/out-of-resources"


def test_clusters_are_launched_as_planned(client: DeviceClient, hopper: str) -> None:
    tensors = {"z": TensorSpec("i32", (8,), "out")}
    plan = LaunchPlan("kernel", hopper, (8, 1, 1), (32, 1, 1), (4, 1, 1), 0, (PointerParam("z"),), tensors)
    outputs, findings = client.run(built(CLUSTER, hopper), plan, {})
    assert findings == []
    np.testing.assert_array_equal(outputs["z"], [40, 41, 42, 43] * 2)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("i < 1000", "i < 990"), "device/unwritten"),
        (("i < 1000", "i < 1003"), "device/out-of-bounds-write"),
        (("z[i] =", "const_cast<float*>(x)[i] = 1.0f, z[i] ="), "device/input-modified"),
    ],
)
def test_what_no_correct_kernel_does_is_found(
    client: DeviceClient, info: DeviceInfo, change: tuple[str, str], code: str
) -> None:
    _, findings = client.run(built(ADD.replace(*change), info.arch), vector_plan(info.arch), vectors())
    assert [finding["code"] for finding in findings] == [code]


def test_a_read_outside_shows_in_the_result(client: DeviceClient, info: DeviceInfo) -> None:
    outputs, _ = client.run(
        built(ADD.replace("x[i]", "x[i + 1]"), info.arch), vector_plan(info.arch), vectors()
    )
    assert np.isnan(outputs["z"][-1])


def test_a_check_compares_and_repeats(client: DeviceClient, info: DeviceInfo) -> None:
    inputs = vectors()
    exact = {"z": inputs["x"].astype(np.float64) + inputs["y"]}
    args = (built(ADD, info.arch), vector_plan(info.arch), inputs)
    right = client.check(*args, exact, {"z": (0.0, 2.0**-23)}, repeats=3)
    assert right["ok"]
    assert right["repeats"] == 3
    wrong = client.check(*args, {"z": exact["z"] + 1}, {"z": (0.0, 2.0**-23)})
    assert not wrong["ok"]
    assert wrong["outputs"]["z"]["mismatched"] == 1000
    rows = np.array([0, 999])
    assert client.check(*args, {"z": exact["z"][rows]}, {"z": (0.0, 2.0**-23)}, rows=rows)["ok"]


def test_a_race_shows_as_a_result_that_changes(client: DeviceClient, info: DeviceInfo) -> None:
    racing = ADD.replace("x[i] + y[i]", "x[i] + static_cast<float>(clock64() & 0xffff)")
    args = (built(racing, info.arch), vector_plan(info.arch), vectors())
    said = client.check(*args, {"z": np.zeros(1000)}, {"z": (1e9, 0.0)}, repeats=3)
    assert "device/unstable" in {finding["code"] for finding in said["findings"]}


def test_a_crash_costs_the_worker_and_nothing_else(client: DeviceClient, info: DeviceInfo) -> None:
    wild = ADD.replace("z[i] =", "reinterpret_cast<float*>(0x10)[i] = 1.0f, z[i] =")
    with pytest.raises(DeviceFault) as fault:
        client.run(built(wild, info.arch), vector_plan(info.arch), vectors())
    assert fault.value.code in {"device/illegal-address", "device/launch-failed"}
    test_vector_add(client, info)


def test_a_kernel_that_does_not_end_is_killed_at_the_deadline(client: DeviceClient, info: DeviceInfo) -> None:
    endless = ADD.replace(
        "if (i < 1000)",
        "long long start = clock64();\n    while (clock64() - start < 40000000000ll) {}\n    if (i < 1000)",
    )
    client.probe()
    with pytest.raises(DeviceFault) as fault:
        client.run(built(endless, info.arch), vector_plan(info.arch), vectors(), deadline=5.0)
    assert fault.value.code == "device/deadline"
    test_vector_add(client, info)


def test_a_cubin_for_another_architecture_is_refused(client: DeviceClient, info: DeviceInfo) -> None:
    other = "sm_80" if info.arch != "sm_80" else "sm_90a"
    with pytest.raises(DeviceFault, match=other) as fault:
        client.run(built(ADD, other), vector_plan(other), vectors())
    assert fault.value.code == "device/wrong-arch"
    with pytest.raises(DeviceFault) as fault:
        client.run(b"no cubin at all", vector_plan(info.arch), vectors())
    assert fault.value.code == "device/invalid-cubin"


LARGE = 1 << 24


def large_arm(arch: str, body: str = ADD) -> tuple[bytes, LaunchPlan]:
    plan = vector_plan(arch, size=LARGE).to_json()
    grid = [LARGE // 128, 1, 1]
    return built(body.replace("1000", str(LARGE)), arch), LaunchPlan.from_json({**plan, "grid": grid})


def test_one_kernel_is_as_fast_as_itself_and_faster_than_one_that_waits(
    client: DeviceClient, info: DeviceInfo
) -> None:
    cubin, plan = large_arm(info.arch)
    inputs = vectors(LARGE)
    waiting = ADD.replace("if (i", "long long start = clock64(); while (clock64() - start < 4000) {} if (i")
    slow, _ = large_arm(info.arch, waiting)
    exact = {"z": inputs["x"].astype(np.float64) + inputs["y"]}
    said = client.time(
        [("one", cubin, plan), ("same", cubin, plan), ("slow", slow, plan)],
        inputs,
        expected=exact,
        tolerances={"z": (0.0, 2.0**-23)},
        rounds=10,
    )
    assert said["wrong"] == []
    assert said["ratios"]["same"]["ratio"] == pytest.approx(1.0, abs=0.05)
    assert said["ratios"]["slow"]["low"] > 1.05
    # No kernel moves its bytes much faster than a plain copy: a cold cache is cold.
    rate = 3 * 4 * LARGE / said["arms"]["one"]["median"]
    assert 0.3 < rate / client.copy_bandwidth() < 1.15


def test_small_inputs_are_timed_cold_or_warm(client: DeviceClient, info: DeviceInfo) -> None:
    arm = ("add", built(ADD, info.arch), vector_plan(info.arch))
    warm = client.time([arm], vectors(), l2="warm", rounds=5)
    cold = client.time([arm], vectors(), l2="cold", rounds=5)
    assert warm["copies"] == 1
    assert cold["copies"] > 1
    assert 1e-7 < warm["arms"]["add"]["median"] < 1e-4


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_torch_is_an_arm_like_any_other(client: DeviceClient, info: DeviceInfo) -> None:
    """Softmax of torch against a kernel of ours that gives something else: both are timed, ours is wrong."""
    shape = (256, 512)
    tensors = {"x": TensorSpec("bf16", shape, "in"), "y": TensorSpec("bf16", shape, "out")}
    body = """
    extern "C" __global__ void kernel(const unsigned short* x, unsigned short* y) {
        y[blockIdx.x * 512 + threadIdx.x] = x[blockIdx.x * 512 + threadIdx.x];
    }
    """
    params = (PointerParam("x"), PointerParam("y"))
    plan = LaunchPlan("kernel", info.arch, (256, 1, 1), (512, 1, 1), (1, 1, 1), 0, params, tensors)
    x = np.random.default_rng(2).standard_normal(shape).astype(BF16)
    y = np.exp(x.astype(np.float64))
    y /= y.sum(axis=1, keepdims=True)
    said = client.time(
        [("copy", built(body, info.arch), plan)],
        {"x": x},
        torch_task="softmax",
        expected={"y": y},
        tolerances={"y": (1e-6, 2.0**-8)},
        rounds=5,
    )
    assert set(said["arms"]) == {"copy", "torch"}
    assert said["ratios"]["torch"]["ratio"] > 0
    assert said["wrong"] == ["copy"]
    assert said["checked"]["torch"]["y"]["ok"]
