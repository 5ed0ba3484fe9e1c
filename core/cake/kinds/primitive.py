"""Primitive: everything cake knows of one instruction, six facets in one class (plugins/primitives/NAME.py).

    signature  operands, types, layouts, legality with reasons
    effects    which bytes, through which proxy, completing when, ordered by what
    value      numpy semantics on tiles
    time       units used, issue slots, latency, bytes; parameters come from calibrations
    lower      CUDA C++ with inline PTX
    cases      tiny kernels that use it, and at least one that it refuses

A file may hold a family (several classes), or one class that answers to several names through `names`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from cake.diagnostics import Diagnostic, Label, Span
from cake.ir.nodes import Call, Expr
from cake.ir.types import Buffer, DTypeType, FragmentType, RegionType, Type
from cake.machine.effects import Effect, Region

Kind = Literal[
    "fragment",
    "shared",
    "global",
    "tensor",
    "barrier",
    "bool",
    "remote",
    "remote_barrier",
    "int",
    "float",
    "text",
    "dtype",
]
"""`remote`: a window of shared memory in another CTA of the cluster, `remote_barrier`: an mbarrier there."""


class Required:
    """Marks a parameter without default."""


REQUIRED = Required()


@dataclass(frozen=True, slots=True)
class Parameter:
    """One operand: its name, what it may be, a default (then usable as keyword), or any number of them."""

    name: str
    kinds: tuple[Kind, ...]
    default: Any = REQUIRED
    variadic: bool = False


def parameter(name: str, *kinds: Kind, default: Any = REQUIRED, variadic: bool = False) -> Parameter:
    """`parameter("barrier", "barrier")`; see Parameter."""
    return Parameter(name, kinds, default, variadic)


class Refusal(Exception):
    """Raised by `signature`: the diagnostic at the operand."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic
        super().__init__(diagnostic.message)


@dataclass(frozen=True, slots=True)
class Scope:
    """Who executes: `warps` of the role, in warpgroups or not; one thread per `elected`, or all ("")."""

    role: str
    warps: int
    warpgroups: bool = False
    elected: str = ""


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand as `signature` sees it: its type, and its value where that is known on the instance."""

    name: str
    type: Type
    expr: Expr | None
    constant: int | float | str | None = None

    @property
    def span(self) -> Span:
        return self.expr.span if self.expr is not None else Span(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Site:
    """A call on a kernel instance: bound operands, the architecture, who executes, the names assigned, the
    CTAs of a cluster."""

    call: Call
    operands: Mapping[str, tuple[Operand, ...]]
    arch: str
    scope: Scope
    targets: tuple[str, ...] = ()
    result: Type | None = None
    cluster: int = 1

    def operand(self, name: str) -> Operand:
        """The single operand bound to parameter `name`."""
        return self.operands[name][0]

    def has(self, name: str) -> bool:
        """Whether the author gave it (no default took its place)."""
        return any(o.expr is not None for o in self.operands[name])

    def fragment(self, name: str) -> FragmentType:
        """The operand's type, a fragment (its Parameter admits nothing else)."""
        kind = self.operand(name).type
        assert isinstance(kind, FragmentType)
        return kind

    def region(self, name: str) -> RegionType:
        """The operand's type, a window of memory."""
        kind = self.operand(name).type
        assert isinstance(kind, RegionType)
        return kind

    def dtype(self, name: str) -> DTypeType:
        """The operand's type, a dtype."""
        kind = self.operand(name).type
        assert isinstance(kind, DTypeType)
        return kind

    def integer(self, name: str) -> int:
        """The operand's value, an integer that must be known at compile time; Refusal where it is not."""
        operand = self.operand(name)
        if not isinstance(operand.constant, int):
            raise self.refuse(name, f"`{name}` must be a compile-time integer")
        return operand.constant

    def text(self, name: str) -> str:
        """The operand's value, a quoted word."""
        return str(self.operand(name).constant)

    def need_warpgroups(self) -> None:
        """Refuse (`type/scope`) in a role that is not declared in whole warpgroups."""
        if not self.scope.warpgroups:
            message = f"`{self.call.name}` is executed by whole warpgroups"
            raise self.refuse(None, message, code="type/scope", help="role(..., warpgroups=n)")

    def refuse(
        self, name: str | None, message: str, *, code: str = "type/operand", label: str = "", help: str = ""
    ) -> Refusal:
        """The exception to raise: this call, or its operand `name`, is illegal."""
        span = self.call.span
        if name is not None and self.operands[name] and self.operand(name).expr is not None:
            span = self.operand(name).span
        return Refusal(Diagnostic(code, message, Label(span, label), help=help))


# --- the machine's side -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Op:
    """One execution of a call by one warp. `args` holds per parameter a concrete operand:

    int / float / str for scalars and words, `Region` for windows, `BarrierSlot` (or a tuple of them, for a
    whole array) for mbarriers, `DType` for dtypes, a tuple for variadic parameters, and for fragments a
    `FragmentValue`. `warp` is the warp's index in its role.
    """

    site: Site
    args: Mapping[str, Any]
    warp: int

    def region(self, name: str) -> Region:
        value = self.args[name]
        assert isinstance(value, Region)
        return value

    @property
    def result(self) -> FragmentType:
        kind = self.site.result
        assert isinstance(kind, FragmentType)
        return kind


class Memory(Protocol):
    """What `value` may touch: arrays of the buffer's dtype. Windows outside a global tensor read as `fill`
    and writes there are dropped."""

    def read(self, region: Region, fill: float = 0.0) -> np.ndarray[Any, Any]: ...

    def write(self, region: Region, data: np.ndarray[Any, Any]) -> None: ...


# --- the clock's side -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Use:
    """What one execution by one warp costs. `issue` cycles of the warp's issue slot; `units` busy cycles per
    unit of the SM ("tensor", "shared", "alu", "mufu", "lsu", "copy"); `latency` cycles until the result or
    completion; `l2_read`/`l2_write` bytes asked of the memory system. `asynchronous`: the warp goes on."""

    issue: float
    units: Mapping[str, float] = field(default_factory=dict)
    latency: float = 0.0
    l2_read: int = 0
    l2_write: int = 0
    asynchronous: bool = False


Parameters = Callable[[str], float]
"""Looks a calibration key up ("wgmma.latency"); raises cake.cost.Unknown where no calibration sets it."""


# --- the code generator's side ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Registers:
    """A fragment in CUDA text: `name` is a local array `ctype name[count]` (16-bit elements are packed in
    pairs, low half first, as `unsigned`: count = elements/2)."""

    name: str
    type: FragmentType
    ctype: str
    count: int


@dataclass(frozen=True, slots=True)
class Window:
    """A region in CUDA text: `origin` holds a C++ integer expression per axis, `size` extents; `rank`, where
    it lies in another CTA of the cluster, that CTA's rank."""

    buffer: Buffer
    origin: tuple[str, ...]
    size: tuple[int, ...]
    shape: tuple[int, ...]
    rank: str = ""


class Writer(Protocol):
    """Emits the body of the kernel; each helper asked for is included once."""

    def line(self, text: str) -> None:
        """One line of C++ at the current indentation."""
        ...

    def asm(
        self,
        template: str,
        outputs: Sequence[tuple[str, str]] = (),
        inputs: Sequence[tuple[str, str]] = (),
        *,
        memory: bool = True,
    ) -> None:
        """An `asm volatile`: outputs and inputs are (constraint, C++ lvalue/expression) pairs, from %0 on."""
        ...

    def temporary(self, kind: FragmentType) -> Registers:
        """Fresh registers for a fragment."""
        ...

    def unique(self, stem: str) -> str:
        """A fresh identifier."""
        ...

    def helper(self, name: str, text: str) -> str:
        """Put the device function (or struct) `text` once before the kernel; returns `name`."""
        ...

    def shared_address(self, window: Window, index: Sequence[str]) -> str:
        """C++ expression (unsigned, 32-bit shared address) of the element at `index` (relative to the
        window's origin, one C++ expression per axis of the buffer), swizzle applied. Of a window in another
        CTA it is an address of the cluster's shared window."""
        ...

    def global_index(self, window: Window, index: Sequence[str]) -> str:
        """C++ expression (long long, in elements) of an element of a global tensor."""
        ...

    def coordinate(self, origin: str) -> str:
        """C++ expression (int): the start of a window as a coordinate of the copy engine."""
        ...

    def tensor_address(self, window: Window, column: int = 0) -> str:
        """C++ expression (unsigned, lane 0) of a 32-bit column of a window of tensor memory."""
        ...

    def in_bounds(self, window: Window, index: Sequence[str]) -> str:
        """C++ condition: the element lies inside the global tensor; "true" where that is known."""
        ...

    def remote_address(self, address: str, rank: str) -> str:
        """C++ expression: what lies at the shared `address`, in CTA `rank` of the cluster (mapa)."""
        ...

    def barrier_address(self, operand: Any) -> str:
        """C++ expression (unsigned shared address) of one mbarrier."""
        ...

    def remember(self, key: str, registers: Registers) -> None:
        """Note under `key` that these registers are live until their C++ scope closes."""
        ...

    def remembered(self, key: str) -> Sequence[Registers]:
        """What was noted under `key` and is still in scope."""
        ...

    def tensor_map(self, buffer: Buffer, box: tuple[int, ...], swizzle: int) -> str:
        """Declare (once) a tensor map parameter for `buffer` with `box` (outermost first); its C++ name."""
        ...

    @property
    def thread(self) -> str:
        """C++ name: thread index within the role (0 .. 32*warps-1)."""
        ...

    @property
    def warp(self) -> str:
        """C++ name: warp index within the role, warp-uniform."""
        ...

    @property
    def lane(self) -> str:
        """C++ name: lane 0..31."""
        ...


@dataclass(frozen=True, slots=True)
class Lowering:
    """A call at code generation. `args` per parameter: C++ text for integers and numbers, `Registers`,
    `Window`, a C++ expression of the shared address (unsigned) for one mbarrier or the pair
    (address of the first, count) for an array, `DType`, str for words, tuples for variadic ones.
    `result`: where to leave the fragment (for `in_place` primitives, the operand's own registers); `target`:
    the C++ name to assign the integer to (for `scalar` ones)."""

    site: Site
    args: Mapping[str, Any]
    result: Registers | None
    target: str = ""


# --- cases ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Good:
    """A kernel that is accepted. With `dims` it is executed; `expect(inputs) -> outputs` is an independent
    numpy statement of what it computes (inputs are random normal, or integers for i32), compared within
    `rtol` of the largest value; `archs` to compile for (all claimed ones if empty)."""

    name: str
    kernel: str
    dims: Mapping[str, int] = field(default_factory=dict)
    expect: Callable[[Mapping[str, np.ndarray[Any, Any]]], Mapping[str, np.ndarray[Any, Any]]] | None = None
    rtol: float = 0.0
    archs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bad:
    """A kernel that is refused by `signature`: `#! code` marks the faulty line."""

    name: str
    kernel: str
    dims: Mapping[str, int] = field(default_factory=dict)


class Primitive(ABC):
    """One instruction, or a family of the same shape answering to several `names`."""

    names: ClassVar[tuple[str, ...]]
    archs: ClassVar[str] = ">=sm_80"
    operators: ClassVar[Mapping[str, str]] = {}
    """Operators of the surface this gives meaning to on fragments: {"+": "add"}."""
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    in_place: ClassVar[str] = ""
    """Parameter whose registers become the result: the author must assign the call back to that name."""
    collective: ClassVar[bool] = True
    """Needs all lanes of the warp: illegal under one_thread()."""
    warpgroup: ClassVar[bool] = False
    """Executed by all four warps of a warpgroup together; the machine reports where some stay away."""
    scalar: ClassVar[bool] = False
    """Yields an integer, uniform over the warp, between its operands `low` and `high`: `value` gives it where
    values are known, and the machine tries the extremes where they are not."""
    single: ClassVar[bool] = False
    """Issued once, by one thread: illegal outside one_thread(), where every lane would issue it."""
    uses: ClassVar[tuple[str, ...]] = ()
    """Calibration keys that `time` looks up."""
    cases: ClassVar[tuple[Good | Bad, ...]] = ()

    @abstractmethod
    def signature(self, site: Site) -> Type | None:
        """The result's type (None: no result). Raises site.refuse(...) where the call is illegal."""

    @abstractmethod
    def effects(self, op: Op) -> Sequence[Effect]:
        """What this execution does, in order."""

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        """The result (this warp's part, shape `layout.warp_shape`), and writes through `memory`."""
        return None

    @abstractmethod
    def time(self, op: Op, parameters: Parameters) -> Use:
        """What this execution costs."""

    @abstractmethod
    def lower(self, op: Lowering, out: Writer) -> None:
        """Emit the CUDA text; leave the result in `op.result`."""
