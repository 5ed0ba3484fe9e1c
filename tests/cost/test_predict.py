"""Predictions of the golden kernels: what is known of them, and what must hold whatever the parameters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cake.cost import KEYS, Unknown, floor, predict
from cake.cost.steady import cuts
from cake.diagnostics import KernelErrors
from cake.errors import CakeError
from cake.ir import instantiate, parse
from cake.ir.arch import admits
from cake.plugins import Registry
from tests.cost.whatif import golden, predicted, scaled

SMALL = {
    "gemm_sm80": {"M": 600, "N": 520, "K": 416},
    "gemm_sm90a": {"M": 600, "N": 520, "K": 416},
    "rmsnorm": {"M": 700, "N": 1024},
    "softmax": {"M": 700, "N": 1024},
}
SQUARE = {"M": 4096, "N": 4096, "K": 4096}
SPEEDS = ("hbm.bandwidth", "l2.bandwidth", "l2.sm_bytes", "shared.bytes", "tma.bytes", "mma.flops", "clock")


# --- known cases --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rmsnorm", "softmax"])
def test_rows_take_the_time_of_their_bytes(registry: Registry, name: str) -> None:
    dims = {"M": 16384, "N": 4096}
    found = predicted(registry, name, dims)
    bytes_once = 2 * 2 * dims["M"] * dims["N"]
    assert found.bound == "hbm"
    assert "memory_bound" in found.symptoms
    assert found.seconds == pytest.approx(bytes_once / 4.25e12, rel=0.1)
    assert found.low < found.seconds < found.high


def test_a_large_product_is_bound_by_tensor_cores_when_l2_delivers(registry: Registry) -> None:
    rich = scaled(registry, {"l2.bandwidth": 2.0, "l2.sm_bytes": 2.0})
    found = predicted(rich, "gemm_sm90a", SQUARE, {"BN": 256, "STAGES": 3})
    assert found.bound == "tensor"
    rate = 2 * 4096**3 / found.seconds
    assert 0.7 * 949e12 < rate < 949e12


def test_mma_sync_is_slower_than_wgmma(registry: Registry) -> None:
    rich = scaled(registry, {"l2.bandwidth": 2.0})
    assert predicted(rich, "gemm_sm80", SQUARE).seconds > predicted(rich, "gemm_sm90a", SQUARE).seconds


def test_few_rows_cost_a_launch(registry: Registry) -> None:
    found = predicted(registry, "softmax", {"M": 16, "N": 256})
    assert found.bound == "launch"
    assert found.seconds < 5e-6


def test_a_shallow_ring_exposes_the_copies(registry: Registry) -> None:
    shallow = predicted(registry, "gemm_sm90a", SQUARE, {"STAGES": 2})
    deep = predicted(registry, "gemm_sm90a", SQUARE, {"STAGES": 4})
    assert "copy_latency_exposed" in shallow.symptoms
    assert shallow.seconds > 1.1 * deep.seconds
    waiting = [line for line in shallow.by_line if line.role == "mma" and "copy" in line.waits]
    assert waiting[0].waits["copy"] > 0.3 * shallow.seconds


def test_narrow_loads_are_a_symptom(registry: Registry) -> None:
    dims = {"M": 8192, "N": 4096}
    assert "narrow_accesses" in predicted(registry, "softmax", dims, {"VEC": 1}).symptoms
    assert "narrow_accesses" not in predicted(registry, "softmax", dims, {"VEC": 8}).symptoms


def test_the_order_of_tiles_decides_what_device_memory_delivers(registry: Registry) -> None:
    dims = {"M": 8192, "N": 8192, "K": 8192}
    before = golden(registry, "gemm_sm90a", dims)
    tactic = registry.tactics["group_tiles"]
    move = next(m for m in tactic.sites(before.kernel, _report(dims)) if m.key == "GROUP=8")
    after = instantiate(tactic.apply(before.kernel, move), dims, primitives=registry.primitives)
    assert predict(after, registry).hbm_bytes < 0.6 * predict(before, registry).hbm_bytes


def _report(dims: dict[str, int]):
    from cake.kinds.tactic import Report

    return Report(frozenset(), dims, "sm_90a")


def test_uneven_tiles_are_a_tail(registry: Registry) -> None:
    found = predicted(registry, "gemm_sm90a", {"M": 128 * 7, "N": 128 * 19, "K": 512})
    assert "tail_wave" in found.symptoms


def test_what_limits_occupancy_is_named(registry: Registry) -> None:
    dims = {"M": 8192, "N": 4096}
    few = {"M": 8192, "N": 256}
    assert predicted(registry, "softmax", few, {"WARPS": 1}).occupancy.limit == "blocks"
    assert predicted(registry, "gemm_sm90a", SQUARE).occupancy.limit == "shared"
    told = predict(golden(registry, "softmax", dims), registry, registers=128)
    assert (told.occupancy.blocks, told.occupancy.limit, told.occupancy.estimated) == (2, "registers", False)
    assert told.notes == ()


# --- what must hold -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_a_prediction_is_the_same_each_time(registry: Registry, name: str) -> None:
    assert predicted(registry, name, SMALL[name]) == predicted(registry, name, SMALL[name])


@settings(max_examples=24)
@given(name=st.sampled_from(sorted(SMALL)), key=st.sampled_from(SPEEDS), factor=st.floats(1.05, 8.0))
def test_more_speed_is_never_slower(registry: Registry, name: str, key: str, factor: float) -> None:
    """Earliest-first scheduling may lose a little by an earlier start; never more than 2 %."""
    faster = predicted(scaled(registry, {key: factor}), name, SMALL[name])
    assert faster.seconds <= 1.02 * predicted(registry, name, SMALL[name]).seconds


@settings(max_examples=12)
@given(
    stages=st.integers(2, 6),
    k=st.integers(1, 40),
    bm=st.sampled_from([64, 128]),
    sms=st.sampled_from([3, 132]),
)
def test_no_depth_of_the_ring_blocks(registry: Registry, stages: int, k: int, bm: int, sms: int) -> None:
    dims = {"M": 500, "N": 640, "K": 64 * k}
    found = predicted(registry, "gemm_sm90a", dims, {"STAGES": stages, "BM": bm, "SMS": sms})
    assert not any("no steady state" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "dims", "constants"),
    [
        ("gemm_sm80", {"M": 512, "N": 512, "K": 1600}, {}),
        ("gemm_sm90a", {"M": 1024, "N": 1024, "K": 1536}, {"SMS": 16}),
        ("gemm_sm90a", {"M": 1024, "N": 1024, "K": 256}, {"SMS": 8, "STAGES": 6}),
    ],
)
def test_shortened_loops_agree_with_all_passes(
    registry: Registry,
    name: str,
    dims: dict[str, int],
    constants: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = predicted(registry, name, dims, constants)
    monkeypatch.setattr("cake.cost.steady.cuts", lambda counts: ())
    full = predicted(registry, name, dims, constants)
    assert short.seconds == pytest.approx(full.seconds, rel=0.005)
    assert short.l2_bytes == pytest.approx(full.l2_bytes)
    assert short.by_unit == pytest.approx(full.by_unit, abs=0.005)


def test_relatives_of_a_long_loop_are_cut_with_it() -> None:
    [cut] = cuts({(0, 64): False, (0, 61): False, (0, 3): False})
    assert (cut.count, cut.high - cut.low) == (64, 4)
    assert cuts({(0, 5): False, (1, 2): False}) == ()


def test_lines_of_a_role_add_up_to_the_cta(registry: Registry) -> None:
    found = predicted(registry, "gemm_sm90a", SQUARE)
    for role in ("load", "mma"):
        assert sum(c.share for c in found.by_line if c.role == role) == pytest.approx(1.0, abs=0.05)


def test_the_floor_is_below_the_prediction(registry: Registry) -> None:
    for name, dims in SMALL.items():
        found = predicted(registry, name, dims)
        assert found.floor_seconds <= found.low <= found.seconds
    assert floor(registry, "H200", bytes=4.8e12).seconds == pytest.approx(1.0)
    assert floor(registry, "H200", bytes=0, flops=989e12).seconds == pytest.approx(0.92, abs=0.05)


# --- parameters ---------------------------------------------------------------------------------------------


def test_the_h200_has_every_parameter(registry: Registry) -> None:
    runs = [p for p in registry.primitives.values() if admits(p.archs, "sm_90a")]
    declared = {key for primitive in runs for key in primitive.uses} | set(KEYS)
    known = {key for c in registry.calibrations.values() if c.device == "H200" for key in c.sets}
    assert declared - known == set()


def test_what_is_not_calibrated_is_unknown(registry: Registry) -> None:
    with pytest.raises(Unknown, match=r"no calibration of H200 sets 'mma.flops'"):
        predicted(scaled(registry, {"mma.flops": 0.0}), "gemm_sm80", SMALL["gemm_sm80"])
    with pytest.raises(Unknown, match=r"H200 sets 'launch.time' \(seconds"):
        predicted(scaled(registry, {"launch.time": 0.0}), "softmax", SMALL["softmax"])


def test_devices_that_do_not_serve_are_refused(registry: Registry) -> None:
    rows = golden(registry, "softmax", SMALL["softmax"])
    with pytest.raises(CakeError, match="no device is called"):
        predict(rows, registry, "H2000")
    product = golden(registry, "gemm_sm90a", SMALL["gemm_sm90a"])
    with pytest.raises(CakeError, match="gemm is for sm_90a; B200 is sm_100a"):
        predict(product, registry, "B200")


def test_the_provenance_says_what_is_not_measured(registry: Registry) -> None:
    found = predicted(registry, "softmax", SMALL["softmax"])
    assert "vendor data, not measured" in found.provenance
    for name, calibration in registry.calibrations.items():
        told = replace(calibration, provenance=replace(calibration.provenance, source="measured"))
        registry = replace(registry, calibrations={**registry.calibrations, name: told})
    assert "vendor" not in predicted(registry, "softmax", SMALL["softmax"]).provenance


# --- kernels without a time ---------------------------------------------------------------------------------


def test_a_kernel_that_waits_for_ever_has_no_time(registry: Registry) -> None:
    text = registry.kernels["gemm_sm90a"].read_text(encoding="utf-8").replace("arrive(free[s])", "it += 0")
    instance = instantiate(parse(text, "blocked.cake"), SQUARE, primitives=registry.primitives)
    with pytest.raises(KernelErrors) as refused:
        predict(instance, registry)
    [diagnostic] = refused.value.diagnostics
    assert diagnostic.code == "cost/no-end"
    assert "wait(" in text.split("\n")[diagnostic.primary.span.line - 1]


def test_a_cta_that_does_not_fit_has_no_time(registry: Registry) -> None:
    with pytest.raises(KernelErrors) as refused:
        predicted(registry, "gemm_sm90a", SQUARE, {"BN": 256, "STAGES": 6})
    assert refused.value.diagnostics[0].code == "cost/does-not-fit"


# --- registers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dims", "constants", "compiled"),
    [
        ("gemm_sm80", SQUARE, {}, 136),
        ("gemm_sm80", SQUARE, {"WN": 64}, 219),
        ("gemm_sm90a", SQUARE, {}, 168),
        ("softmax", {"M": 8192, "N": 4096}, {}, 32),
        ("softmax", {"M": 8192, "N": 4096}, {"WARPS": 2}, 79),
        ("rmsnorm", {"M": 8192, "N": 8192}, {"WARPS": 16}, 47),
    ],
)
def test_estimated_registers_are_near_those_that_nvrtc_takes(
    registry: Registry, name: str, dims: dict[str, int], constants: dict[str, int], compiled: int
) -> None:
    assert predicted(registry, name, dims, constants).occupancy.registers == pytest.approx(compiled, rel=0.1)
