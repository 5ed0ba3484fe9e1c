"""tcgen05 memory: allocate, load and store tensor memory, and hand it from thread to thread (sm_100a)

Takes
    `tcgen05_alloc(columns)`, `tcgen05_relinquish()` and `tcgen05_dealloc(columns)`: one warp, outside of
    roles; 32 to 512 columns, a power of two. `v = tcgen05_ld(acc[s, :, c:+n])` and `tcgen05_st(acc[s, :,
    c:+n], v)`: a warpgroup, all 128 lanes, n columns of 32 bits; the fragment [128, n] has layout
    "tensor": thread t holds row t. `tcgen05_wait_ld()`, `tcgen05_wait_st()`; `tcgen05_fence_before()`,
    `tcgen05_fence_after()`.
Touches
    Loads and stores: 32 lanes by each warp. The allocation is made known through shared memory.
Completes when
    Loads and stores at the wait of their kind. To other threads, what is complete is handed on by
    `tcgen05_fence_before()`, a rendezvous or mbarrier, and `tcgen05_fence_after()`.
Source
    PTX ISA, "Tensor Memory Allocation and Management Instructions", "tcgen05.ld", "tcgen05.st",
    "tcgen05.wait", "tcgen05.fence".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.ir.layouts import TensorRows
from cake.ir.types import FragmentType, Type
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
    Window,
    Writer,
    parameter,
)
from cake.machine.effects import (
    Allocate,
    Async,
    Commit,
    Deallocate,
    Effect,
    Fence,
    FenceKind,
    Group,
    Read,
    Region,
    Relinquish,
    WaitGroup,
    Write,
)

LANES = 32
LARGEST = 64
"""Columns of one instruction at most: what one `asm` statement names as operands."""

KERNEL = """
@kernel(arch="sm_100a")
def keep(x: Global[f32, N], y: GlobalOut[f32, M, N]):
    grid(1)
    t = TensorMemory[f32, 128, 64](column=0)
    if warp == 0:
        tcgen05_alloc(64)
        tcgen05_relinquish()
    cta_sync()
    with role("all", warpgroups=1):
        tcgen05_st(t, zeros(f32, 128, 64, layout="tensor") + 2.0)
        tcgen05_wait_st()
        v = tcgen05_ld(t[:, 16:+32])
        tcgen05_wait_ld()
        store(y[0:+128, 0:+32], v, vector=4)
    cta_sync()
    if warp == 0:
        tcgen05_dealloc(64)
"""
"""One warpgroup keeps a tile in tensor memory and takes a part of it back."""


def _expected(inputs: Any) -> dict[str, Any]:
    return {"y": np.full((128, 32), 2.0)}


KEPT = Good("a warpgroup's own rows", KERNEL, dims={"M": 128, "N": 32}, expect=_expected)


def in_role(call: str, mark: str) -> str:
    """A kernel with one call in a role of two warps."""
    return f"""
@kernel(arch="sm_100a")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    t = TensorMemory[f32, 128, 64](column=0)
    with role("all", warps=2):
        {call}  #! {mark}
"""


class _Tcgen05(Primitive):
    archs = "sm_100a"


class _Management(_Tcgen05):
    parameters = (parameter("columns", "int"),)

    def signature(self, site: Site) -> Type | None:
        if site.scope.role:
            message = f"`{site.call.name}` stands outside of roles, under `if warp == 0:`"
            raise site.refuse(None, message, code="type/scope")
        if site.has("columns"):
            columns = site.integer("columns")
            if columns not in (32, 64, 128, 256, 512):
                raise site.refuse("columns", f"columns are 32, 64, 128, 256 or 512, not {columns}")
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)


class Tcgen05Alloc(_Management):
    """tcgen05.alloc: the address goes to a word of shared memory, which roles read at their start."""

    names = ("tcgen05_alloc",)

    def effects(self, op: Op) -> Sequence[Effect]:
        return (Allocate(op.args["columns"]),)

    def lower(self, op: Lowering, out: Writer) -> None:
        columns = op.site.integer("columns")
        text = f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], {columns};"
        out.asm(text, inputs=[("r", out.tensor_slot())])

    cases = (
        KEPT,
        Bad("in a role", in_role("tcgen05_alloc(64)", "type/scope"), dims={"N": 1}),
        Bad(
            "no power of two",
            """
@kernel(arch="sm_100a")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    t = TensorMemory[f32, 128, 64](column=0)
    if warp == 0:
        tcgen05_alloc(96)  #! type/operand
    with role("all", warps=2):
        i = 0
""",
            dims={"N": 1},
        ),
    )


class Tcgen05Dealloc(_Management):
    """tcgen05.dealloc."""

    names = ("tcgen05_dealloc",)

    def effects(self, op: Op) -> Sequence[Effect]:
        return (Deallocate(op.args["columns"]),)

    def lower(self, op: Lowering, out: Writer) -> None:
        columns = op.site.integer("columns")
        text = f"tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, {columns};"
        out.asm(text, inputs=[("r", out.tensor_base())])

    cases = (KEPT, Bad("in a role", in_role("tcgen05_dealloc(64)", "type/scope"), dims={"N": 1}))


class Tcgen05Relinquish(_Management):
    """tcgen05.relinquish_alloc_permit: this CTA allocates no more."""

    names = ("tcgen05_relinquish",)
    parameters = ()

    def effects(self, op: Op) -> Sequence[Effect]:
        return (Relinquish(),)

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;")

    def signature(self, site: Site) -> Type | None:
        if site.scope.role:
            raise site.refuse(None, "`tcgen05_relinquish` stands outside of roles", code="type/scope")
        return None

    cases = (KEPT, Bad("in a role", in_role("tcgen05_relinquish()", "type/scope"), dims={"N": 1}))


# --- loads and stores ---------------------------------------------------------------------------------------


def fragment_of(site: Site) -> FragmentType:
    """The fragment that a window of tensor memory is in registers. Refuses windows of other forms."""
    site.need_warpgroups()
    window = site.region("window")
    if len(window.shape) != 2 or window.window[-2:] != window.shape or window.shape[0] != 4 * LANES:
        message = f"a warpgroup moves all {4 * LANES} lanes x n columns, this window is {list(window.shape)}"
        raise site.refuse("window", message)
    if window.dtype.bytes != 4:
        message = f"`{window.buffer.name}` holds {window.dtype.value}; loads and stores move 32-bit columns"
        raise site.refuse("window", message)
    return FragmentType(window.dtype, window.shape, TensorRows())


def lanes_of(op: Op) -> Region:
    """This warp's 32 lanes of the window."""
    region = op.region("window")
    start, size = [0] * len(region.size), list(region.size)
    start[-2], size[-2] = op.warp % 4 * LANES, LANES
    return region.sub(tuple(start), tuple(size))


def pieces(columns: int) -> list[tuple[int, int]]:
    """First column and width of each instruction: widths are powers of two."""
    out, at = [], 0
    while at < columns:
        width = min(LARGEST, 1 << ((columns - at).bit_length() - 1))
        out.append((at, width))
        at += width
    return out


def address(out: Writer, window: Window, column: int) -> str:
    """Of a column, in the lanes that the warp may reach."""
    return f"{out.tensor_address(window, column)} + ({out.warp} % 4 << 21)"


class Tcgen05Ld(_Tcgen05):
    """tcgen05.ld.sync.aligned.32x32b."""

    names = ("tcgen05_ld",)
    warpgroup = True
    parameters = (parameter("window", "tensor"),)
    uses = ("tcgen05.ld.latency",)

    def signature(self, site: Site) -> Type | None:
        return fragment_of(site)

    def effects(self, op: Op) -> Sequence[Effect]:
        mine = lanes_of(op)
        return (Async(reads=(Read(mine.buffer, mine.box),), group="tcgen05_ld", result=True),)

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        mine = lanes_of(op)
        return memory.read(mine).reshape(mine.size[-2:]).copy()

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(len(pieces(op.site.region("window").shape[1])), {}, parameters("tcgen05.ld.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        result = op.result
        assert result is not None
        for first, width in pieces(result.type.shape[1]):
            registers = ", ".join(f"%{i}" for i in range(width))
            text = f"tcgen05.ld.sync.aligned.32x32b.x{width}.b32 {{{registers}}}, [%{width}];"
            kind = "f" if result.ctype == "float" else "r"
            outputs = [(f"={kind}", f"{result.name}[{first + i}]") for i in range(width)]
            out.asm(text, outputs, [("r", address(out, op.args["window"], first))])

    cases = (
        KEPT,
        Bad("by a role that is no warpgroup", in_role("v = tcgen05_ld(t)", "type/scope"), dims={"N": 1}),
    )


class Tcgen05St(_Tcgen05):
    """tcgen05.st.sync.aligned.32x32b."""

    names = ("tcgen05_st",)
    warpgroup = True
    parameters = (parameter("window", "tensor"), parameter("value", "fragment"))

    def signature(self, site: Site) -> Type | None:
        wanted = fragment_of(site)
        if site.fragment("value") != wanted:
            held = site.fragment("value")
            message = (
                f"the window takes [{wanted.dtype.value}, {wanted.shape[0]}, {wanted.shape[1]}] in layout"
            )
            raise site.refuse("value", f"{message} tensor, this is {list(held.shape)} in {held.layout.name}")
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        mine = lanes_of(op)
        return (Async(writes=(Write(mine.buffer, mine.box),), group="tcgen05_st"),)

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        memory.write(lanes_of(op), op.args["value"].array)
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(len(pieces(op.site.region("window").shape[1])))

    def lower(self, op: Lowering, out: Writer) -> None:
        value: Registers = op.args["value"]
        kind = "f" if value.ctype == "float" else "r"
        for first, width in pieces(value.type.shape[1]):
            registers = ", ".join(f"%{i + 1}" for i in range(width))
            text = f"tcgen05.st.sync.aligned.32x32b.x{width}.b32 [%0], {{{registers}}};"
            held = [(kind, f"{value.name}[{first + i}]") for i in range(width)]
            out.asm(text, inputs=[("r", address(out, op.args["window"], first)), *held])

    cases = (
        KEPT,
        Bad(
            "an accumulator of wgmma",
            """
@kernel(arch="sm_100a")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    t = TensorMemory[f32, 128, 64](column=0)
    with role("all", warpgroups=1):
        tcgen05_st(t, zeros(f32, 64, 64, layout="wgmma"))  #! type/operand
""",
            dims={"N": 1},
        ),
    )


# --- order ------------------------------------------------------------------------------------------------


class _Wait(_Tcgen05):
    group: Group

    def signature(self, site: Site) -> Type | None:
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        # Nothing is committed by the author: the wait is for all that the warp has issued.
        return (Commit(self.group), WaitGroup(self.group, 0))

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm(f"tcgen05.wait::{self.group[-2:]}.sync.aligned;")


class Tcgen05WaitLd(_Wait):
    """tcgen05.wait::ld: all loads of the warp are complete."""

    names = ("tcgen05_wait_ld",)
    group = "tcgen05_ld"
    cases = (
        KEPT,
        Bad("with an operand", in_role("tcgen05_wait_ld(0)", "type/arguments"), dims={"N": 1}),
    )


class Tcgen05WaitSt(_Wait):
    """tcgen05.wait::st: all stores of the warp are complete."""

    names = ("tcgen05_wait_st",)
    group = "tcgen05_st"
    cases = (
        KEPT,
        Bad("with an operand", in_role("tcgen05_wait_st(0)", "type/arguments"), dims={"N": 1}),
    )


RELAY = Good(
    "from warpgroup to warpgroup",
    """
@kernel(arch="sm_100a")
def relay(x: Global[f32, N], y: GlobalOut[f32, M, N]):
    grid(1)
    t = TensorMemory[f32, 128, 32](column=0)
    if warp == 4:
        tcgen05_alloc(32)
    cta_sync()
    with role("first", warpgroups=1):
        tcgen05_st(t, zeros(f32, 128, 32, layout="tensor") + 2.0)
        tcgen05_wait_st()
        tcgen05_fence_before()
        named_arrive(1, warps=8)
    with role("second", warpgroups=1):
        named_sync(1, warps=8)
        tcgen05_fence_after()
        v = tcgen05_ld(t)
        tcgen05_wait_ld()
        store(y[0:+128, 0:+32], v, vector=4)
    cta_sync()
    if warp == 4:
        tcgen05_dealloc(32)
""",
    dims={"M": 128, "N": 32},
    expect=_expected,
)


class _TensorFence(_Tcgen05):
    kind: FenceKind
    collective = False

    def signature(self, site: Site) -> Type | None:
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (Fence(self.kind),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        out.asm(f"tcgen05.fence::{self.kind.removeprefix('tcgen05_')}_thread_sync;")


class Tcgen05FenceBefore(_TensorFence):
    """tcgen05.fence::before_thread_sync: what is complete is handed on by the next release."""

    names = ("tcgen05_fence_before",)
    kind = "tcgen05_before"
    cases = (
        RELAY,
        Bad("with an operand", in_role("tcgen05_fence_before(0)", "type/arguments"), dims={"N": 1}),
    )


class Tcgen05FenceAfter(_TensorFence):
    """tcgen05.fence::after_thread_sync: what was handed on comes before what follows."""

    names = ("tcgen05_fence_after",)
    kind = "tcgen05_after"
    cases = (
        RELAY,
        Bad("with an operand", in_role("tcgen05_fence_after(0)", "type/arguments"), dims={"N": 1}),
    )
