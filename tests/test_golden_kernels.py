"""What holds for every golden kernel: one text, no diagnostic, right values, a clean compile."""

from __future__ import annotations

import pytest

from cake import verify
from cake.codegen import compile_source, generate
from cake.evaluate.evaluator import Target
from cake.evaluate.values import check_values
from cake.ir import print_kernel
from cake.ir.arch import canonical, claimed
from cake.plugins import Registry
from tests.golden_kernels import GOLDEN, Golden

every = pytest.mark.parametrize("golden", GOLDEN.values(), ids=GOLDEN)


@every
def test_the_file_is_in_canonical_form(golden: Golden) -> None:
    assert print_kernel(golden.kernel) == golden.kernel.source.text


@every
def test_no_rule_has_anything_to_say(golden: Golden, registry: Registry) -> None:
    report = verify.check(golden.kernel, registry)
    assert not report.diagnostics, report.diagnostics[0]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@every
def test_it_computes_its_task_on_random_and_hostile_inputs(golden: Golden, registry: Registry) -> None:
    arch = canonical(golden.kernel.arch)
    target = Target(golden.task.name(), next(iter(golden.task.shapes.values())), arch, "H200", "machine", 0)
    assert check_values(golden.kernel, registry, golden.task, target, arch) >= 2


@pytest.mark.parametrize(
    ("golden", "arch"),
    [
        pytest.param(golden, arch, id=f"{golden.name}-{arch}")
        for golden in GOLDEN.values()
        for arch in claimed(canonical(golden.kernel.arch))
    ],
)
def test_it_compiles_without_spills_wherever_it_claims(golden: Golden, arch: str, registry: Registry) -> None:
    compiled = compile_source(generate(golden.instance(registry, arch)).source, arch, path=golden.name)
    assert compiled.spill_bytes == 0
    assert compiled.notes == ()
