"""What the machine observed: typed findings that rules turn into diagnostics.

The engine states what happened and never how to say it: a `Finding` names the instructions involved by
their spans. A finding that no rule claims is still reported, under `machine/...` (verify fails closed).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

from cake.diagnostics import Span
from cake.ir.layouts import Traffic
from cake.ir.types import Buffer
from cake.machine.effects import BarrierSlot, Box, Group, Proxy

if TYPE_CHECKING:
    from cake.ir.instance import Instance


@dataclass(frozen=True, slots=True)
class Access:
    """One access to memory: by which instruction (primitive name and place), warp, proxy, on which bytes.
    `completion`: the kind of group, or the mbarrier, that shows an asynchronous access to be complete;
    `passes`: the loops around it and where they stood, outermost first."""

    primitive: str
    span: Span
    warp: int
    role: str
    proxy: Proxy
    write: bool
    buffer: Buffer
    box: Box
    asynchronous: bool
    completion: Group | BarrierSlot | None = None
    passes: tuple[tuple[str, int], ...] = field(default=(), compare=False)

    @property
    def asynchronous_write(self) -> bool:
        """A copy into these bytes that an mbarrier shows to be complete."""
        return self.write and isinstance(self.completion, BarrierSlot)


Cause = Literal["unordered", "unfenced", "incomplete", "overtaken", "tensor_unfinished", "tensor_unfenced"]


@dataclass(frozen=True, slots=True)
class Race:
    """Two conflicting accesses with nothing that orders them.

    `cause`: "unordered" no path of synchronization from one to the other (of an asynchronous operation that
    completes in its warp: not even from its issue); "unfenced" ordered, but the earlier generic access was
    not published to the async proxy by its thread; "incomplete" the earlier asynchronous operation is not
    known to have completed; "overtaken" unordered or incomplete, but the reader was told of an earlier
    execution of the same write: the bytes it was told of are being replaced. In tensor memory:
    "tensor_unfinished" the earlier operation is not known to have completed, "tensor_unfenced" it is, but no
    tcgen05 fences hand it on.
    """

    earlier: Access
    later: Access
    cause: Cause
    blocks: tuple[int, int] | None = None
    """The CTAs of the two accesses, where these differ."""


@dataclass(frozen=True, slots=True)
class UninitializedRead:
    """Bytes are read that nothing wrote."""

    access: Access


@dataclass(frozen=True, slots=True)
class Displaced:
    """Bytes are read whose value is gone: `by` wrote to them through another buffer that lies over them."""

    access: Access
    by: Access


@dataclass(frozen=True, slots=True)
class OutOfBounds:
    """A window sticks out of its buffer and the instruction does not clip."""

    primitive: str
    span: Span
    buffer: Buffer
    start: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Misaligned:
    """An access at byte `offset` of its buffer, which the instruction needs to be a multiple of `bytes`."""

    primitive: str
    span: Span
    buffer: Buffer
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Blocked:
    """A warp that waits for ever: where, for what, and which instructions could have let it go. Of an
    mbarrier: `completed` phases so far, `needed` for the wait to pass, `pending` of `arrivals`
    missing."""

    warp: int
    role: str
    span: Span
    waits_for: str
    slot: BarrierSlot | None
    signallers: tuple[Span, ...]
    iteration: str = ""
    completed: int = 0
    needed: int = 0
    pending: int = 0
    arrivals: int = 0

    @property
    def incomplete(self) -> bool:
        """Some of the phase's arrivals came, some did not."""
        return 0 < self.pending < self.arrivals


@dataclass(frozen=True, slots=True)
class Deadlock:
    """No warp can go on. `blocked` lists each distinct wait once: at rendezvous first, then where some
    arrivals came. `starved`: whoever arrived on what the
    first one waits for has ended."""

    blocked: tuple[Blocked, ...]
    starved: bool = False


@dataclass(frozen=True, slots=True)
class Transactions:
    """An mbarrier phase whose expected bytes are not those delivered."""

    slot: BarrierSlot
    expected: int
    delivered: int
    expects: tuple[Span, ...]
    copies: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class BarrierMisuse:
    """An mbarrier used against its life cycle.

    `kind`: "uninitialized" (used before init), "reinitialized", "init_unordered" (a warp uses it without a
    rendezvous after the initialization), "init_unfenced" (no fence.mbarrier_init between init and the first
    use by the async proxy), "too_many_arrivals" (arrivals beyond the phase's count), "overrun" (a wait is
    answered by an older phase than the one just completed: nothing keeps the barrier from moving past the
    waiter, or the parity is wrong), "idle_wait" (the wait for a copy passes before the first phase is
    complete; `other` uses its bytes), "repeated_wait" (it passes on a phase that was known to be complete,
    and `other` refills what that does not release), "unordered_arrival" (by who does not know the phase
    before to be complete: the arrival may count there), "unconsumed" (bytes still arriving at exit).
    """

    kind: Literal[
        "uninitialized",
        "reinitialized",
        "init_unordered",
        "init_unfenced",
        "too_many_arrivals",
        "overrun",
        "idle_wait",
        "repeated_wait",
        "unordered_arrival",
        "unconsumed",
    ]
    slot: BarrierSlot
    span: Span
    other: Span | None = None


@dataclass(frozen=True, slots=True)
class RendezvousMismatch:
    """Warps meet at a hardware barrier with different counts, or a count that cannot come together."""

    id: int
    span: Span
    other: Span
    counts: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RunAhead:
    """A warp comes to a hardware barrier again without knowing that its arrival at `earlier` was consumed."""

    id: int
    span: Span
    earlier: Span


@dataclass(frozen=True, slots=True)
class AbsentPeer:
    """An access to the shared memory of CTA `cta` of the cluster, which may be absent: nothing says that it
    has started ("unstarted"), or that it does not end before ("exited"), or there is none ("outside")."""

    kind: Literal["unstarted", "exited", "outside"]
    span: Span
    cta: int


@dataclass(frozen=True, slots=True)
class ClusterMisuse:
    """barrier.cluster out of turn: "arrives_twice" without a wait between, "waits_unannounced" without having
    arrived."""

    kind: Literal["arrives_twice", "waits_unannounced"]
    span: Span


TensorKind = Literal[
    "unallocated",
    "beyond",
    "unordered",
    "freed",
    "freed_in_use",
    "wrong_size",
    "allocated_twice",
    "relinquished",
    "leaked",
]


@dataclass(frozen=True, slots=True)
class TensorMisuse:
    """Tensor memory against its life cycle: used without being allocated ("unallocated"), over more columns
    than are ("beyond"), by who does not know of the allocation ("unordered"), after ("freed") or while
    ("freed_in_use") it is given back; given back with another size; allocated twice, or after the permit
    was given up ("relinquished"); never given back ("leaked"). `other`: the other place."""

    kind: TensorKind
    span: Span
    other: Span | None = None


@dataclass(frozen=True, slots=True)
class FragmentHazard:
    """Registers touched while the tensor cores own them ("in_flight"), or handed over "unfenced"."""

    kind: Literal["in_flight", "unfenced"]
    span: Span
    producer: Span


@dataclass(frozen=True, slots=True)
class Undrained:
    """A group of asynchronous operations is still in flight when the warp exits, or was never committed."""

    group: Group
    span: Span
    committed: bool


@dataclass(frozen=True, slots=True)
class RegisterPool:
    """setmaxnreg asked for more than the CTA holds: growth can never be granted."""

    span: Span
    requested: int
    available: int


@dataclass(frozen=True, slots=True)
class RegisterStep:
    """setmaxnreg against its contract, which the hardware leaves undefined.

    `kind`: "direction" (an increase to `requested` below the `present` budget, or a decrease to above it);
    "unsynced" (not all warps of the warpgroup are known to have executed the one before, at `earlier`).
    """

    kind: Literal["direction", "unsynced"]
    span: Span
    requested: int
    present: int
    earlier: Span | None = None


@dataclass(frozen=True, slots=True)
class PartialWarpgroup:
    """An instruction of whole warpgroups that only some warps of one executed."""

    primitive: str
    span: Span
    role: str


@dataclass(frozen=True, slots=True)
class BarrierId:
    """A hardware barrier that does not exist, or barrier 0 with a number of warps: that one is the CTA's."""

    span: Span
    id: int


@dataclass(frozen=True, slots=True)
class Unwritten:
    """All CTAs have ended, and `missing` elements of an output hold nothing, the first at `first`; `writes`
    are the places that write to it."""

    buffer: Buffer
    missing: int
    first: tuple[int, ...]
    writes: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class OutsideContract:
    """A number that was read from memory lies outside what the kernel's text declares."""

    span: Span
    value: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Runaway:
    """The run was cut off after `steps` instructions."""

    span: Span
    steps: int


@dataclass(frozen=True, slots=True)
class BankConflict:
    """An access to shared memory whose lanes take turns at the banks. It is no fault, so no `Finding`."""

    primitive: str
    span: Span
    buffer: Buffer
    traffic: Traffic


Finding = (
    Race
    | UninitializedRead
    | Displaced
    | OutOfBounds
    | Misaligned
    | Deadlock
    | Transactions
    | BarrierMisuse
    | RendezvousMismatch
    | RunAhead
    | AbsentPeer
    | ClusterMisuse
    | TensorMisuse
    | FragmentHazard
    | Undrained
    | RegisterPool
    | RegisterStep
    | PartialWarpgroup
    | BarrierId
    | Unwritten
    | OutsideContract
    | Runaway
)

F = TypeVar("F", bound=Finding)


@dataclass(slots=True)
class Facts:
    """One run, as rules see it. `findings` in order of discovery; `steps` instructions executed."""

    instance: Instance
    blocks: tuple[int, ...]
    findings: list[Finding] = field(default_factory=list)
    steps: int = 0
    conflicts: dict[tuple[Span, str], BankConflict] = field(default_factory=dict)
    """The worst execution of each instruction with bank conflicts, by its place and buffer."""
    idle_waits: dict[tuple[str, str], Span] = field(default_factory=dict)
    """Per mbarrier array and role, a wait that passes before the first phase is complete."""
    repeated_waits: dict[tuple[str, str], Span] = field(default_factory=dict)
    """Per mbarrier array and role, a wait that passes on a phase which the role knew to be complete."""
    arrivers: dict[str, int] = field(default_factory=dict)
    """Per mbarrier array, the most warps that arrive on one of it."""
    assignment: str = "mixed"
    """What numbers from memory were taken to be."""
    taken: set[tuple[int, bool]] = field(default_factory=set)
    """Branches and loops by identity of their node: condition true or false, body run or never."""

    def of(self, kind: type[F]) -> Iterator[F]:
        """The findings of one kind."""
        return (f for f in self.findings if isinstance(f, kind))
