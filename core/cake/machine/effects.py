"""What an instruction does to the abstract GPU, as data: primitives return these, the engine applies them.

Sources: PTX ISA, "Memory Consistency Model" (proxies, causality order), "Asynchronous Operations",
"mbarrier" and "setmaxnreg". Every effect belongs to one warp executing one instruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cake.ir.layouts import Traffic
from cake.ir.types import Buffer

Box = tuple[tuple[int, int], ...]
"""Per axis of the buffer: first index and extent, in elements, clipped to the buffer."""

Proxy = Literal["generic", "async", "tensormap"]
Group = Literal["cp_async", "bulk", "wgmma", "tcgen05", "tcgen05_ld", "tcgen05_st"]
"""How asynchronous operations of a warp complete: groups that are waited for, or committed to an mbarrier."""
FenceKind = Literal[
    "async_proxy", "async_global", "mbarrier_init", "wgmma", "tcgen05_before", "tcgen05_after"
]


@dataclass(frozen=True, slots=True)
class Region:
    """A concrete window of a buffer. `start`/`size` give it per axis as the author wrote it; it may stick out
    of a global tensor, `box` is the part inside (empty extents where nothing is). `cta`: the rank of the CTA
    whose shared memory it is, -1 for the executing one."""

    buffer: Buffer
    start: tuple[int, ...]
    size: tuple[int, ...]
    cta: int = -1

    @property
    def box(self) -> Box:
        return tuple(
            (min(max(a, 0), n), max(0, min(a + s, n) - min(max(a, 0), n)))
            for a, s, n in zip(self.start, self.size, self.buffer.shape, strict=True)
        )

    @property
    def inside(self) -> bool:
        """No element of the window lies outside the buffer."""
        return all(
            a >= 0 and a + s <= n for a, s, n in zip(self.start, self.size, self.buffer.shape, strict=True)
        )

    @property
    def bytes(self) -> int:
        """Bytes of the whole window, whether inside or not."""
        total = self.buffer.dtype.bytes
        for s in self.size:
            total *= s
        return total

    def sub(self, start: tuple[int, ...], size: tuple[int, ...]) -> Region:
        """The window at `start` (relative, per axis) of extent `size` in this one."""
        return Region(
            self.buffer, tuple(a + b for a, b in zip(self.start, start, strict=True)), size, self.cta
        )


@dataclass(frozen=True, slots=True)
class BarrierSlot:
    """One mbarrier: the array's name, the index in it, and the rank of its CTA (-1: the executing one)."""

    name: str
    index: int
    cta: int = -1


# --- memory -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """The warp reads these bytes now, through the generic proxy; `cta` as in Region. `tensormap`: the copy
    engine reads a tensor map there; `some`: only a part of the bytes, which values decide."""

    buffer: Buffer
    box: Box
    cta: int = -1
    tensormap: bool = False
    some: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """The warp writes these bytes now, through the generic proxy; `cta` as in Region. `reduces`: it combines
    with what is there, each element atomically, so that such writes need no order among themselves."""

    buffer: Buffer
    box: Box
    cta: int = -1
    reduces: bool = False


@dataclass(frozen=True, slots=True)
class Aligned:
    """The instruction needs the element at `start` to lie at a multiple of `bytes`."""

    buffer: Buffer
    start: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Inside:
    """The instruction does not clip: the window must lie inside its buffer."""

    region: Region


@dataclass(frozen=True, slots=True)
class Banked:
    """The access asks so much of the shared-memory port: a matter of time, never of order."""

    buffer: Buffer
    traffic: Traffic


@dataclass(frozen=True, slots=True)
class Async:
    """An asynchronous operation issued now: reads and writes happen between issue and completion.

    `proxy` is "async" for the copy engine and the tensor cores, "generic" for cp.async. Completion is
    observed through `barrier` (its bytes counted there) or through the group of kind `group` that the
    warp commits next. `fragment` names the operand whose registers are written asynchronously (wgmma),
    `registers` those whose registers are read so, `result`: the fragment that results is.
    """

    reads: tuple[Read, ...] = ()
    writes: tuple[Write, ...] = ()
    proxy: Proxy = "async"
    group: Group | None = None
    barrier: BarrierSlot | None = None
    bytes: int = 0
    fragment: str = ""
    result: bool = False
    registers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """Close the current group of this kind."""

    group: Group


@dataclass(frozen=True, slots=True)
class WaitGroup:
    """Block until at most `pending` groups of this kind are in flight; `reads_only`: until they have read."""

    group: Group
    pending: int
    reads_only: bool = False


@dataclass(frozen=True, slots=True)
class CommitTo:
    """tcgen05.commit: one arrival on `slot` once all that this thread has issued to tcgen05 is complete."""

    slot: BarrierSlot


@dataclass(frozen=True, slots=True)
class ArriveCopied:
    """cp.async.mbarrier.arrive: `arrivals` arrivals on `slot` once the warp's earlier cp.async are complete.
    With `counted` they are added to what the phase waits for, so that it needs others to complete."""

    slot: BarrierSlot
    arrivals: int
    counted: bool


@dataclass(frozen=True, slots=True)
class Allocate:
    """tcgen05.alloc: `columns` of tensor memory for the CTA."""

    columns: int


@dataclass(frozen=True, slots=True)
class Relinquish:
    """tcgen05.relinquish_alloc_permit: the CTA may allocate no more."""


@dataclass(frozen=True, slots=True)
class Deallocate:
    """tcgen05.dealloc: give `columns` back."""

    columns: int


# --- synchronization --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitBarrier:
    """mbarrier.init."""

    slot: BarrierSlot
    arrivals: int


@dataclass(frozen=True, slots=True)
class Arrive:
    """One arrival (release), after adding `expect_bytes` to the transaction count."""

    slot: BarrierSlot
    expect_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """Block until the phase of `parity` has completed (acquire). At scope "cta" nothing is learnt of what the
    warps of other CTAs did, only of what is complete."""

    slot: BarrierSlot
    parity: int
    scope: Literal["cta", "cluster"] = "cta"


@dataclass(frozen=True, slots=True)
class Fence:
    """Order this thread's earlier accesses: those to shared memory ("async_proxy") or to global tensors
    ("async_global") towards the async proxy, mbarrier initializations, or registers."""

    kind: FenceKind


@dataclass(frozen=True, slots=True)
class AcquireMap:
    """fence.proxy.tensormap (acquire): what this thread knows to be written to the tensor map at `region` is
    there for the copies that it issues from now on."""

    region: Region


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A hardware barrier: block until `warps` warps have come to barrier `id` (0 is the CTA's). With `blocks`
    false the warp is counted and goes on."""

    id: int
    warps: int
    blocks: bool = True


@dataclass(frozen=True, slots=True)
class ClusterArrive:
    """barrier.cluster.arrive: count this warp and go on; with `release` its accesses become known."""

    release: bool = True


@dataclass(frozen=True, slots=True)
class ClusterWait:
    """barrier.cluster.wait: block until every warp of the cluster has arrived (acquire)."""


@dataclass(frozen=True, slots=True)
class SetRegisters:
    """setmaxnreg: this warpgroup's budget per thread becomes `count`; growing waits for the pool."""

    count: int
    grow: bool


Effect = (
    Read
    | Write
    | Aligned
    | Inside
    | Banked
    | Async
    | Commit
    | CommitTo
    | ArriveCopied
    | Allocate
    | Relinquish
    | Deallocate
    | WaitGroup
    | InitBarrier
    | Arrive
    | Wait
    | Fence
    | AcquireMap
    | Rendezvous
    | ClusterArrive
    | ClusterWait
    | SetRegisters
)
