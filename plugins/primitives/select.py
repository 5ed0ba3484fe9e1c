"""select and comparisons: conditions for each element of a fragment

Takes
    `a < b` and the other comparisons, of f32, i32 or u32 as arithmetic takes them: a fragment of conditions
    (`pred`). `select(p, a, b)`: a where p holds, else b. `both(p, q)`, `either(p, q)`, `invert(p)`;
    `vote_any(p)`, `vote_all(p)`: one condition for the warp.
Touches
    Registers only; votes go over all lanes of the warp.
Completes when
    Program order.
Source
    PTX ISA, "setp", "selp", "vote.sync". Comparisons with a NaN are false, but for `!=`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from cake.codegen.pieces import CTYPES, loop
from cake.ir.layouts import LANES, REPLICATED
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
NUMBERS = (DType.f32, DType.i32, DType.u32)
COMPARE: Mapping[str, tuple[str, Callable[..., Array]]] = {
    "less": ("<", np.less),
    "less_equal": ("<=", np.less_equal),
    "greater": (">", np.greater),
    "greater_equal": (">=", np.greater_equal),
    "equal": ("==", np.equal),
    "not_equal": ("!=", np.not_equal),
}
LOGIC: Mapping[str, tuple[str, Callable[..., Array]]] = {
    "both": ("&&", np.logical_and),
    "either": ("||", np.logical_or),
}


class _Lanewise(Primitive):
    uses = ("alu.lanes", "alu.latency")

    def effects(self, op: Op) -> Sequence[Effect]:
        return ()

    def time(self, op: Op, parameters: Parameters) -> Use:
        count = op.result.registers
        return Use(count, {"alu": count * LANES / parameters("alu.lanes")}, parameters("alu.latency"))


class Compare(_Lanewise):
    """setp."""

    names = tuple(COMPARE)
    operators: ClassVar[Mapping[str, str]] = {text: name for name, (text, _) in COMPARE.items()}
    parameters = (parameter("a", "fragment", "float"), parameter("b", "fragment", "float"))

    def signature(self, site: Site) -> Type | None:
        whole = together(site, ("a", "b"))
        same_dtype(site, ("a", "b"), NUMBERS, "numbers are compared in f32, i32 and u32")
        return FragmentType(DType.pred, whole.shape, whole.layout)

    def value(self, op: Op, memory: Memory) -> Array | None:
        kind = same_dtype(op.site, ("a", "b"), NUMBERS, "").numpy
        a, b = (values(op, n, op.result).astype(kind) for n in ("a", "b"))
        return np.asarray(COMPARE[op.site.call.name][1](a, b))

    def lower(self, op: Lowering, out: Writer) -> None:
        assert op.result is not None
        kind = CTYPES[same_dtype(op.site, ("a", "b"), NUMBERS, "")]
        with loop(out, "i_", op.result.count):
            a, b = (side(op.args[n], op.result.type, kind) for n in ("a", "b"))
            out.line(f"{op.result.name}[i_] = {a} {COMPARE[op.site.call.name][0]} {b};")

    cases = (
        Good(
            "the tail of a row left out",
            """
@kernel(arch="sm_80")
def centre(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        d = select(iota(v) < N, v - warp_sum(v) / N, 0.0)
        store(y[:], d * warp_sum(d * d), vector=1)
""",
            dims={"N": 40},
            expect=lambda i: {"y": (i["x"] - i["x"].mean()) * ((i["x"] - i["x"].mean()) ** 2).sum()},
            rtol=1e-5,
        ),
        Good(
            "integers of a tile, conditions joined",
            """
@kernel(arch="sm_80")
def mask(y: GlobalOut[i32, M, N]):
    grid(1)
    with role("tile", warps=1):
        acc = full(i32, 16, 16, value=1, layout="mma")
        row = iota(acc, 0)
        column = iota(acc, 1)
        low = both(column <= row, invert(row == 3))
        store(y[0:+16, 0:+16], select(either(low, column > 14), acc, -acc), vector=1)
""",
            dims={"M": 16, "N": 16},
            expect=lambda i: {
                "y": np.where(
                    (np.tri(16, dtype=bool) & (np.arange(16)[:, None] != 3)) | (np.arange(16) > 14)[None, :],
                    1,
                    -1,
                )
            },
        ),
        Bad(
            "16-bit floats",
            """
@kernel(arch="sm_80")
def wrong(x: Global[bf16, N], y: GlobalOut[bf16, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=2, fill=0.0)
        p = v < 1.0  #! type/operand
""",
            dims={"N": 64},
        ),
    )


class Logic(_Lanewise):
    """Conditions joined element by element."""

    names = (*LOGIC, "invert")
    parameters = (parameter("a", "fragment"), parameter("b", "fragment", default=0))

    def signature(self, site: Site) -> Type | None:
        names = ("a",) if site.call.name == "invert" else ("a", "b")
        for name in names:
            if not site.has(name):
                raise site.refuse(None, f"`{site.call.name}` takes two conditions")
        if site.call.name == "invert" and site.has("b"):
            raise site.refuse("b", "`invert` takes one condition")
        whole = together(site, names)
        same_dtype(site, names, (DType.pred,), "conditions are joined")
        return FragmentType(DType.pred, whole.shape, whole.layout)

    def value(self, op: Op, memory: Memory) -> Array | None:
        if op.site.call.name == "invert":
            return np.logical_not(op.args["a"].array)
        a, b = (values(op, n, op.result) for n in ("a", "b"))
        return np.asarray(LOGIC[op.site.call.name][1](a, b))

    def lower(self, op: Lowering, out: Writer) -> None:
        assert op.result is not None
        with loop(out, "i_", op.result.count):
            text = f"!{side(op.args['a'], op.result.type)}"
            if op.site.call.name != "invert":
                a, b = (side(op.args[n], op.result.type) for n in ("a", "b"))
                text = f"{a} {LOGIC[op.site.call.name][0]} {b}"
            out.line(f"{op.result.name}[i_] = {text};")

    cases = (
        Good(
            "neither",
            """
@kernel(arch="sm_80")
def clip(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        store(y[:], select(invert(either(v > 0.5, v < -0.5)), v, 0.0), vector=1)
""",
            dims={"N": 64},
            expect=lambda i: {"y": np.where(np.abs(i["x"]) <= 0.5, i["x"], 0)},
        ),
        Bad(
            "of numbers",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        p = both(v, v)  #! type/operand
""",
            dims={"N": 64},
        ),
    )


class Select(_Lanewise):
    """selp."""

    names = ("select",)
    parameters = (
        parameter("condition", "fragment"),
        parameter("a", "fragment", "float"),
        parameter("b", "fragment", "float"),
    )

    def signature(self, site: Site) -> Type | None:
        if site.fragment("condition").dtype is not DType.pred:
            raise site.refuse("condition", "`select` chooses by a fragment of conditions", help="a < b")
        whole = together(site, ("condition", "a", "b"))
        if not any(isinstance(site.operand(n).type, FragmentType) for n in ("a", "b")):
            return FragmentType(DType.f32, whole.shape, whole.layout)
        dtype = same_dtype(site, ("a", "b"), NUMBERS, "`select` is of f32, i32 and u32")
        return FragmentType(dtype, whole.shape, whole.layout)

    def value(self, op: Op, memory: Memory) -> Array | None:
        kind = op.result.dtype.numpy
        a, b = (values(op, n, op.result).astype(kind) for n in ("a", "b"))
        return np.asarray(np.where(values(op, "condition", op.result), a, b), kind)

    def lower(self, op: Lowering, out: Writer) -> None:
        assert op.result is not None
        kind = CTYPES[op.result.type.dtype]
        with loop(out, "i_", op.result.count):
            p = side(op.args["condition"], op.result.type)
            a, b = (side(op.args[n], op.result.type, kind) for n in ("a", "b"))
            out.line(f"{op.result.name}[i_] = {p} ? {a} : {b};")

    cases = (
        Good(
            "the larger of two",
            """
@kernel(arch="sm_80")
def larger(x: Global[f32, N], z: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        a = load(x[:], vector=2, fill=0.0)
        b = load(z[:], vector=2, fill=0.0)
        store(y[:], select(a >= b, a, b), vector=2)
""",
            dims={"N": 64},
            expect=lambda i: {"y": np.maximum(i["x"], i["z"])},
        ),
        Bad(
            "by numbers",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        w = select(v, v, 0.0)  #! type/operand
""",
            dims={"N": 64},
        ),
    )


class Vote(_Lanewise):
    """vote.sync over all elements that the warp holds."""

    names = ("vote_any", "vote_all")
    parameters = (parameter("condition", "fragment"),)

    def signature(self, site: Site) -> Type | None:
        if site.fragment("condition").dtype is not DType.pred:
            raise site.refuse("condition", "a vote is over conditions", help="a < b")
        return FragmentType(DType.pred, (), REPLICATED)

    def value(self, op: Op, memory: Memory) -> Array | None:
        array = op.args["condition"].array
        return np.asarray(array.any() if op.site.call.name == "vote_any" else array.all())

    def lower(self, op: Lowering, out: Writer) -> None:
        assert op.result is not None
        held, every = op.args["condition"], op.site.call.name == "vote_all"
        name = out.unique("cake_vote")
        out.line(f"bool {name} = {'true' if every else 'false'};")
        with loop(out, "i_", held.count):
            out.line(f"{name} = {name} {'&&' if every else '||'} {held.name}[i_];")
        out.line(f"{op.result.name}[0] = __{'all' if every else 'any'}_sync(0xffffffffu, {name});")

    cases = (
        Good(
            "whether any, whether all",
            """
@kernel(arch="sm_80")
def ask(x: Global[f32, N], y: GlobalOut[f32, 2, N]):
    grid(1)
    with role("row", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        store(y[0, :], select(vote_any(v > 100.0), v, 1.0), vector=1)
        store(y[1, :], select(vote_all(v < 100.0), v, 1.0), vector=1)
""",
            dims={"N": 64},
            expect=lambda i: {"y": np.stack([np.ones(64), i["x"]])},
        ),
        Bad(
            "over numbers",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warps=1):
        p = vote_any(load(x[:], vector=1, fill=0.0))  #! type/operand
""",
            dims={"N": 64},
        ),
    )
