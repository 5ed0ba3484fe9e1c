"""The cases of every primitive on a real GPU: values as the cases expect them, nothing written elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cake.codegen import compile_source, generate
from cake.conformance.support import compare, dedent, instance_of, random_inputs
from cake.device.client import DeviceClient
from cake.errors import MissingEnvironment
from cake.ir import parse
from cake.ir.arch import admits, canonical, claimed
from cake.kinds.primitive import Good, Primitive
from tests.golden_kernels import REGISTRY

pytestmark = pytest.mark.gpu

CASES = [
    pytest.param(primitive, case, id=f"{primitive.names[0]}: {case.name}")
    for primitive in dict.fromkeys(REGISTRY.primitives.values())
    for case in primitive.cases
    if isinstance(case, Good) and case.dims and case.expect is not None
]


@pytest.fixture(scope="module")
def client() -> Iterator[DeviceClient]:
    with DeviceClient() as made:
        try:
            made.probe()
        except MissingEnvironment as missing:
            pytest.skip(str(missing))
        yield made


@pytest.mark.parametrize(("primitive", "case"), CASES)
def test_the_device_gives_what_the_case_expects(
    client: DeviceClient, primitive: Primitive, case: Good
) -> None:
    arch = canonical(client.probe().arch)
    declared = canonical(parse(dedent(case.kernel)).arch)
    if arch not in claimed(declared) or not admits(primitive.archs, arch):
        pytest.skip(f"{primitive.names[0]} in a kernel for {declared} does not claim {arch}")
    instance = instance_of(REGISTRY, dedent(case.kernel), case.dims, case.name, arch)
    inputs = random_inputs(instance, seed=0)
    assert case.expect is not None
    wanted = case.expect({name: array.copy() for name, array in inputs.items()})
    built = generate(instance)
    outputs, findings = client.run(compile_source(built.source, arch).cubin, built.plan, inputs)
    assert findings == []
    for name, want in wanted.items():
        compare(outputs[name], want, max(case.rtol, 1e-6), name)
