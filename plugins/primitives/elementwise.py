"""elementwise: arithmetic on f32 fragments, element by element, each register in place

Takes
    `a + b`, `a - b`, `a * b`, `a / b`, `maximum(a, b)`, `minimum(a, b)`: two fragments of the same shape and
    layout, or a fragment and a number, or a fragment and a replicated scalar. `-a`, `exp2(a)`, `log2(a)`,
    `rsqrt(a)`, `sqrt(a)`, `abs(a)`: one fragment.
Touches
    Registers only; phantoms are computed like any element.
Completes when
    Program order.
Source
    PTX ISA, "Floating Point Instructions": add, mul, div.full, min, max, ex2.approx, lg2.approx,
    rsqrt.approx, sqrt.approx, abs, neg. The approximations err by about 2 units in the last place of f32
    (log2 near 1 by 2^-22 absolute) and take subnormal numbers for zero. Maxima and minima ignore a NaN beside
    a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cake.codegen.pieces import loop
from cake.ir.layouts import LANES, Replicated
from cake.ir.layouts.conversions import MOVES, meeting
from cake.ir.types import DType, FragmentType, Type
from cake.kinds.primitive import (
    Bad,
    Good,
    Lowering,
    Memory,
    Op,
    Parameters,
    Primitive,
    Registers,
    Site,
    Use,
    Writer,
    parameter,
)
from cake.machine.effects import Effect

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Function:
    """One function: numpy's; its C++ text (`{0}`, `{1}` the operands) or PTX instruction; how many
    instructions it issues on the FMA and on the MUFU pipe."""

    numpy: Callable[..., Array]
    text: str = ""
    instruction: str = ""
    alu: int = 0
    mufu: int = 0

    def emit(self, out: Writer, name: str, sides: Sequence[str]) -> str:
        """C++ expression of the function of `sides`."""
        if self.text:
            return self.text.format(*sides)
        slots = ", ".join(f"%{i}" for i in range(len(sides) + 1))
        inputs = ", ".join(f'"f"(x{i})' for i in range(len(sides)))
        parameters = ", ".join(f"float x{i}" for i in range(len(sides)))
        helper = out.helper(
            f"cake_{name}",
            f"__device__ __forceinline__ float cake_{name}({parameters}) {{\n    float y;\n"
            f'    asm("{self.instruction} {slots};" : "=f"(y) : {inputs});\n    return y;\n}}',
        )
        return f"{helper}({', '.join(sides)})"

    def cost(self, parameters: Parameters, registers: int) -> Use:
        """One warp instruction a register, 32 lanes on pipes that serve `lanes` of them a cycle and SM."""
        units = {}
        if self.alu:
            units["alu"] = registers * self.alu * LANES / parameters("alu.lanes")
        if self.mufu:
            units["mufu"] = registers * self.mufu * LANES / parameters("mufu.lanes")
        return Use(registers * (self.alu + self.mufu), units, parameters("alu.latency"))


BINARY = {
    "add": Function(np.add, "{0} + {1}", alu=1),
    "sub": Function(np.subtract, "{0} - {1}", alu=1),
    "mul": Function(np.multiply, "{0} * {1}", alu=1),
    "div": Function(np.divide, instruction="div.full.f32", alu=4, mufu=1),
    "maximum": Function(np.fmax, "fmaxf({0}, {1})", alu=1),
    "minimum": Function(np.fmin, "fminf({0}, {1})", alu=1),
}
UNARY = {
    "neg": Function(np.negative, "-{0}", alu=1),
    "abs": Function(np.abs, "fabsf({0})", alu=1),
    "exp2": Function(np.exp2, instruction="ex2.approx.ftz.f32", mufu=1),
    "log2": Function(np.log2, instruction="lg2.approx.ftz.f32", mufu=1),
    "sqrt": Function(np.sqrt, instruction="sqrt.approx.ftz.f32", mufu=1),
    "rsqrt": Function(lambda x: 1 / np.sqrt(x), instruction="rsqrt.approx.ftz.f32", mufu=1),
}


def _need_f32(site: Site, name: str) -> None:
    kind = site.operand(name).type
    if isinstance(kind, FragmentType) and kind.dtype is not DType.f32:
        message = f"arithmetic is in f32, this is {kind.dtype.value}"
        raise site.refuse(name, message, help="cast(..., f32)")


class Binary(Primitive):
    """Two operands."""

    names = tuple(BINARY)
    operators: ClassVar[Mapping[str, str]] = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
    parameters = (parameter("a", "fragment", "float"), parameter("b", "fragment", "float"))
    uses = ("alu.lanes", "alu.latency", "mufu.lanes")

    def signature(self, site: Site) -> Type | None:
        kinds = {}
        for name in ("a", "b"):
            _need_f32(site, name)
            kinds[name] = site.operand(name).type
        fragments = {n: k for n, k in kinds.items() if isinstance(k, FragmentType)}
        if not fragments:
            raise site.refuse(
                None, f"`{site.call.name}` needs a fragment; numbers are combined by the compiler"
            )
        wide = {
            n: k for n, k in fragments.items() if not (isinstance(k.layout, Replicated) and k.shape == ())
        }
        if len({(k.shape, k.layout) for k in wide.values()}) > 1:
            one, other = wide.values()
            a, b = (f"{list(k.shape)} in {k.layout.name}" for k in (one, other))
            help = ""
            if one.shape == other.shape:
                help = f"to meet, {MOVES[meeting(one.layout, other.layout, one.shape)]}"
            raise site.refuse("b", f"the fragments differ: {a} and {b}", help=help)
        return next(iter(wide.values()), next(iter(fragments.values())))

    def effects(self, op: Op) -> Sequence[Effect]:
        return ()

    def value(self, op: Op, memory: Memory) -> Array | None:
        function = BINARY[op.site.call.name].numpy
        a, b = (getattr(op.args[n], "array", op.args[n]) for n in ("a", "b"))
        with np.errstate(all="ignore"):
            return np.asarray(function(np.float32(a), np.float32(b)), np.float32)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return BINARY[op.site.call.name].cost(parameters, op.result.registers)

    def lower(self, op: Lowering, out: Writer) -> None:
        assert op.result is not None
        name = op.site.call.name
        with loop(out, "i_", op.result.count):
            sides = [_side(op.args[n], op.result) for n in ("a", "b")]
            out.line(f"{op.result.name}[i_] = {BINARY[name].emit(out, name, sides)};")

    cases = (
        Good(
            "fragments, numbers and a replicated scalar",
            """
@kernel(arch="sm_80")
def mix(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=2, fill=-inf)
        s = warp_max(v)
        store(y[:], maximum(v * 2.0 - s, v) / (v * v + 1.0), vector=2)
""",
            dims={"N": 100},
            expect=lambda i: {"y": np.maximum(i["x"] * 2 - i["x"].max(), i["x"]) / (i["x"] * i["x"] + 1)},
            rtol=1e-5,
        ),
        Good(
            "minimum of a row and a number",
            """
@kernel(arch="sm_80")
def clip(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        store(y[:], minimum(load(x[:], vector=1, fill=0.0), 0.5), vector=1)
""",
            dims={"N": 64},
            expect=lambda i: {"y": np.minimum(i["x"], np.float32(0.5))},
        ),
        Bad(
            "16-bit arithmetic",
            """
@kernel(arch="sm_80")
def wrong(x: Global[bf16, N], y: GlobalOut[bf16, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=2, fill=0.0)
        w = v * 2.0  #! type/operand
""",
            dims={"N": 64},
        ),
    )


class Unary(Primitive):
    """One operand."""

    names = tuple(UNARY)
    parameters = (parameter("a", "fragment"),)
    operators: ClassVar[Mapping[str, str]] = {"neg": "neg"}
    uses = ("alu.lanes", "alu.latency", "mufu.lanes")

    def signature(self, site: Site) -> Type | None:
        _need_f32(site, "a")
        return site.fragment("a")

    def effects(self, op: Op) -> Sequence[Effect]:
        return ()

    def value(self, op: Op, memory: Memory) -> Array | None:
        function = UNARY[op.site.call.name].numpy
        with np.errstate(all="ignore"):
            return np.asarray(function(op.args["a"].array), np.float32)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return UNARY[op.site.call.name].cost(parameters, op.result.registers)

    def lower(self, op: Lowering, out: Writer) -> None:
        assert op.result is not None
        name = op.site.call.name
        with loop(out, "i_", op.result.count):
            side = _side(op.args["a"], op.result)
            out.line(f"{op.result.name}[i_] = {UNARY[name].emit(out, name, [side])};")

    cases = (
        Good(
            "square root of a magnitude",
            """
@kernel(arch="sm_80")
def root(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        store(y[:], -sqrt(abs(load(x[:], vector=1, fill=0.0))), vector=1)
""",
            dims={"N": 64},
            expect=lambda i: {"y": -np.sqrt(np.abs(i["x"]))},
            rtol=1e-6,
        ),
        Good(
            "powers of two",
            """
@kernel(arch="sm_80")
def power(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        store(y[:], log2(exp2(load(x[:], vector=1, fill=0.0)) + 1.0), vector=1)
""",
            dims={"N": 64},
            expect=lambda i: {"y": np.log2(np.exp2(i["x"]) + 1)},
            rtol=1e-5,
        ),
        Good(
            "reciprocal square root",
            """
@kernel(arch="sm_80")
def scale(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=1.0)
        store(y[:], rsqrt(v * v + 1.0), vector=1)
""",
            dims={"N": 64},
            expect=lambda i: {"y": 1 / np.sqrt(i["x"] ** 2 + 1)},
            rtol=1e-6,
        ),
        Bad(
            "of a 16-bit fragment",
            """
@kernel(arch="sm_80")
def wrong(x: Global[bf16, N], y: GlobalOut[bf16, N]):
    grid(1)
    with role("row", warps=1):
        v = exp2(load(x[:], vector=2, fill=0.0))  #! type/operand
""",
            dims={"N": 64},
        ),
    )


def _side(operand: Registers | str, result: Registers) -> str:
    """An operand inside the loop over `i`: its register, its only register, or the number."""
    if isinstance(operand, Registers):
        return f"{operand.name}[i_]" if operand.count == result.count else f"{operand.name}[0]"
    return f"static_cast<float>({operand})"
