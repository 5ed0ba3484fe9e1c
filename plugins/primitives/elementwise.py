"""elementwise: arithmetic on fragments of f32, i32 and u32, element by element, each register in place

Takes
    `a + b`, `a - b`, `a * b`, `maximum(a, b)`, `minimum(a, b)`, of f32 also `a / b`, of integers also
    `a & b`, `a | b`, `a ^ b`, `a << b`, `a >> b`: two fragments that go together (the same shape and layout,
    or a tile and a value for each of its rows or columns), or a fragment and a number or replicated scalar.
    `-a`, `abs(a)`, of f32 also `exp2(a)`, `log2(a)`, `rsqrt(a)`, `sqrt(a)`, `tanh(a)`: one fragment.
Touches
    Registers only; phantoms are computed like any element.
Completes when
    Program order.
Source
    PTX ISA, "Floating Point Instructions": add, mul, div.full, min, max, ex2.approx, lg2.approx,
    rsqrt.approx, sqrt.approx, tanh.approx, abs, neg; "Integer Arithmetic Instructions". The approximations
    err by about 2 units in the last place of f32 (log2 near 1 by 2^-22 absolute) and take subnormal numbers
    for zero. Maxima and minima ignore a NaN beside a number. Integers wrap around.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cake.codegen.pieces import CTYPES, loop
from cake.ir.layouts import LANES
from cake.ir.types import DType, FragmentType, Type
from cake.kinds.primitive import (
    Bad,
    Good,
    Lowering,
    Memory,
    Op,
    Parameters,
    Primitive,
    Site,
    Use,
    Writer,
    parameter,
)
from cake.machine.effects import Effect
from cake_plugins.primitives._spread import same_dtype, side, together, values

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
INTEGER = {
    "add": Function(np.add, "{0} + {1}", alu=1),
    "sub": Function(np.subtract, "{0} - {1}", alu=1),
    "mul": Function(np.multiply, "{0} * {1}", alu=1),
    "maximum": Function(np.maximum, "max({0}, {1})", alu=1),
    "minimum": Function(np.minimum, "min({0}, {1})", alu=1),
    "bit_and": Function(np.bitwise_and, "{0} & {1}", alu=1),
    "bit_or": Function(np.bitwise_or, "{0} | {1}", alu=1),
    "bit_xor": Function(np.bitwise_xor, "{0} ^ {1}", alu=1),
    "shift_left": Function(np.left_shift, "{0} << {1}", alu=1),
    "shift_right": Function(np.right_shift, "{0} >> {1}", alu=1),
}
UNARY = {
    "neg": Function(np.negative, "-{0}", alu=1),
    "abs": Function(np.abs, "fabsf({0})", alu=1),
    "exp2": Function(np.exp2, instruction="ex2.approx.ftz.f32", mufu=1),
    "log2": Function(np.log2, instruction="lg2.approx.ftz.f32", mufu=1),
    "sqrt": Function(np.sqrt, instruction="sqrt.approx.ftz.f32", mufu=1),
    "rsqrt": Function(lambda x: 1 / np.sqrt(x), instruction="rsqrt.approx.ftz.f32", mufu=1),
    "tanh": Function(np.tanh, instruction="tanh.approx.f32", mufu=1),
}
INTEGERS = (DType.i32, DType.u32)


class Binary(Primitive):
    """Two operands."""

    names = tuple(dict.fromkeys([*BINARY, *INTEGER]))
    operators: ClassVar[Mapping[str, str]] = {
        "+": "add",
        "-": "sub",
        "*": "mul",
        "/": "div",
        "&": "bit_and",
        "|": "bit_or",
        "^": "bit_xor",
        "<<": "shift_left",
        ">>": "shift_right",
    }
    parameters = (parameter("a", "fragment", "float"), parameter("b", "fragment", "float"))
    uses = ("alu.lanes", "alu.latency", "mufu.lanes")

    def signature(self, site: Site) -> Type | None:
        name = site.call.name
        whole = together(site, ("a", "b"))
        dtypes = (*((DType.f32,) if name in BINARY else ()), *(INTEGERS if name in INTEGER else ()))
        words = "arithmetic is in f32" if name in BINARY else "bits are those of integers"
        dtype = same_dtype(site, ("a", "b"), dtypes, words)
        return FragmentType(dtype, whole.shape, whole.layout)

    def function(self, site: Site) -> Function:
        assert isinstance(site.result, FragmentType)
        return (BINARY if site.result.dtype is DType.f32 else INTEGER)[site.call.name]

    def effects(self, op: Op) -> Sequence[Effect]:
        return ()

    def value(self, op: Op, memory: Memory) -> Array | None:
        kind = op.result.dtype.numpy
        a, b = (values(op, n, op.result).astype(kind) for n in ("a", "b"))
        with np.errstate(all="ignore"):
            return np.asarray(self.function(op.site).numpy(a, b), kind)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return self.function(op.site).cost(parameters, op.result.registers)

    def lower(self, op: Lowering, out: Writer) -> None:
        assert op.result is not None
        name, kind = op.site.call.name, op.result.type
        with loop(out, "i_", op.result.count):
            sides = [side(op.args[n], kind, CTYPES[kind.dtype]) for n in ("a", "b")]
            out.line(f"{op.result.name}[i_] = {self.function(op.site).emit(out, name, sides)};")

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
            "integers, wrapping around",
            """
@kernel(arch="sm_80")
def mix(x: Global[i32, N], y: GlobalOut[i32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        store(y[:], (maximum(v, -7) * 1000003 + 5 & 65535 | 3) - (v >> 2 ^ v << 4), vector=1)
""",
            dims={"N": 64},
            expect=lambda i: {
                "y": (np.maximum(i["x"], -7) * np.int32(1000003) + 5 & 65535 | 3)
                - (i["x"] >> 2 ^ i["x"] << 4)
            },
        ),
        Good(
            "a value for each row and each column of a tile",
            """
@kernel(arch="sm_80")
def outer(y: GlobalOut[f32, M, N]):
    grid(1)
    with role("tile", warps=1):
        rows = full(f32, 32, value=2.0, layout="mma_rows")
        columns = full(f32, 16, value=3.0, layout="mma_columns")
        acc = zeros(f32, 32, 16, layout="mma")
        store(y[0:+32, 0:+16], (acc + rows) * columns, vector=2)
""",
            dims={"M": 32, "N": 16},
            expect=lambda i: {"y": np.full((32, 16), 6.0)},
        ),
        Bad(
            "a fraction beside integers",
            """
@kernel(arch="sm_80")
def wrong(x: Global[i32, N], y: GlobalOut[i32, N]):
    grid(1)
    with role("row", warps=1):
        store(y[:], load(x[:], vector=1, fill=0.0) * 0.5, vector=1)  #! type/operand
""",
            dims={"N": 64},
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
        integer = INTEGERS if site.call.name in ("neg", "abs") else ()
        same_dtype(site, ("a",), (DType.f32, *integer), "arithmetic is in f32")
        return site.fragment("a")

    def effects(self, op: Op) -> Sequence[Effect]:
        return ()

    def value(self, op: Op, memory: Memory) -> Array | None:
        function = UNARY[op.site.call.name].numpy
        with np.errstate(all="ignore"):
            return np.asarray(function(op.args["a"].array), op.result.dtype.numpy)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return UNARY[op.site.call.name].cost(parameters, op.result.registers)

    def lower(self, op: Lowering, out: Writer) -> None:
        assert op.result is not None
        name, kind = op.site.call.name, op.result.type
        with loop(out, "i_", op.result.count):
            text = side(op.args["a"], kind)
            if name == "abs" and kind.dtype is not DType.f32:
                out.line(f"{op.result.name}[i_] = abs({text});")
            else:
                out.line(f"{op.result.name}[i_] = {UNARY[name].emit(out, name, [text])};")

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
