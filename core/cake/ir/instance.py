"""A kernel on concrete dims and constants: memory laid out, roles placed, every expression typed.

`instantiate` checks types and contracts; machine, cost model and code generator read the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cake.diagnostics import Diagnostic, KernelErrors, Span, error
from cake.ir import nodes as n
from cake.ir.arch import ARCHS, admits, canonical, claimed
from cake.ir.evaluate import EvaluationError, evaluate
from cake.ir.overlays import place_overlays
from cake.ir.printer import expr_text
from cake.ir.types import BarrierType, Buffer, DType, Type

if TYPE_CHECKING:
    from cake.kinds.primitive import Primitive, Site

SWIZZLE_ALIGNMENT = 1024
BUFFER_ALIGNMENT = 128
MAX_THREADS = 1024
MAX_CLUSTER = 8
TENSOR_LANES, TENSOR_COLUMNS = 128, 512
MAX_AXIS = 2**31 - 2**20
"""Index arithmetic on one axis is 32-bit with room for a tile; offsets are formed in 64 bits."""


@dataclass(frozen=True, slots=True)
class RoleInfo:
    """A role placed: warps `first_warp` .. `first_warp + warps - 1` of the CTA."""

    name: str
    first_warp: int
    warps: int
    warpgroups: bool
    node: n.Role


@dataclass(slots=True)
class Instance:
    """A typed kernel on concrete shapes. Treat as read-only.

    `values` holds every scalar known at launch (dims, constants, top-level names that depend on neither
    `block` nor `warp`); `blocks` is the grid size in CTAs, `cluster` the CTAs of a cluster, `threads` the
    CTA's threads, `shared_bytes` what the CTA takes of shared memory.
    """

    kernel: n.Kernel
    dims: Mapping[str, int]
    constants: Mapping[str, int | float]
    arch: str
    primitives: Mapping[str, Primitive]
    values: dict[str, int | float] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    barriers: dict[str, BarrierType] = field(default_factory=dict)
    roles: tuple[RoleInfo, ...] = ()
    blocks: int = 0
    cluster: int = 1
    shared_bytes: int = 0
    tensor_columns: int = 0
    """32-bit columns of tensor memory that declared buffers reach over."""
    tensor_slot: int = 0
    """Offset in shared memory of the word that holds the address of what was allocated."""
    types: dict[int, Type] = field(default_factory=dict)
    sites: dict[int, tuple[Primitive, Site]] = field(default_factory=dict)

    @property
    def warps(self) -> int:
        return sum(role.warps for role in self.roles)

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def title(self) -> str:
        """`gemm M=128 N=256 K=64`, the constants that differ from their defaults after it."""
        words = [f"{name}={value}" for name, value in self.dims.items()]
        defaults = {c.name: c.default for c in self.kernel.constants}
        words += [f"{name}={value}" for name, value in self.constants.items() if defaults[name] != value]
        return " ".join([self.kernel.name, *words])

    def type_of(self, expr: n.Expr) -> Type:
        """The type of an expression node of this kernel."""
        return self.types[id(expr)]

    def site(self, expr: n.Expr) -> Site:
        """The bound call behind a call or an operator on fragments; KeyError for scalar arithmetic."""
        return self.sites[id(expr)][1]

    def primitive(self, expr: n.Expr) -> Primitive:
        """The primitive behind a call or an operator on fragments; KeyError for scalar arithmetic."""
        return self.sites[id(expr)][0]

    def is_primitive(self, expr: n.Expr) -> bool:
        """Whether a primitive gives this node its meaning."""
        return id(expr) in self.sites


def instantiate(
    kernel: n.Kernel,
    dims: Mapping[str, int],
    constants: Mapping[str, int | float] | None = None,
    *,
    primitives: Mapping[str, Primitive],
    arch: str | None = None,
) -> Instance:
    """The kernel on `dims`, with `constants` over their defaults, for `arch` (default: the declared one).

    Raises KernelErrors: `contract/...` outside the kernel's contract, `arch/...` for an architecture it does
    not claim, `type/...` for illegal operands, `res/...` for launches no GPU takes.
    """
    target = _arch(kernel, arch)
    merged = {c.name: c.default for c in kernel.constants}
    unknown = set(constants or {}) - set(merged)
    if unknown:
        name = sorted(unknown)[0]
        _raise(kernel, "contract/unknown-constant", f"the kernel has no constant `{name}`", kernel.span)
    merged.update(constants or {})
    instance = Instance(kernel, dict(dims), merged, target, primitives)
    instance.values.update(merged)
    _bind_dims(kernel, dims)
    instance.values.update({name: dims[name] for name in kernel.dims})
    builder = _Layout(instance)
    builder.run()
    from cake.ir.typing import check_types

    errors = check_types(instance)
    if errors:
        raise KernelErrors(errors, kernel.source)
    return instance


def _raise(kernel: n.Kernel, code: str, message: str, span: Span, help: str = "") -> None:
    raise KernelErrors([error(code, message, span, help=help)], kernel.source)


def _arch(kernel: n.Kernel, arch: str | None) -> str:
    try:
        declared = canonical(kernel.arch)
        target = canonical(arch) if arch else declared
    except KeyError as e:
        known = ", ".join(ARCHS)
        _raise(kernel, "arch/unknown", f"unknown architecture {e.args[0]!r}", kernel.span, f"one of {known}")
        raise AssertionError from e
    if target not in claimed(declared):
        message = f"the kernel is declared for {kernel.arch} and does not run on {target}"
        _raise(kernel, "arch/not-claimed", message, kernel.span, f"it claims {', '.join(claimed(declared))}")
    return target


def _bind_dims(kernel: n.Kernel, dims: Mapping[str, int]) -> None:
    for name in kernel.dims:
        if name not in dims:
            _raise(kernel, "contract/missing-dim", f"no value for the dimension `{name}`", kernel.span)
        if not 0 < dims[name] <= MAX_AXIS:
            _raise(
                kernel,
                "contract/dim-range",
                f"{name} = {dims[name]} is not a positive dimension",
                kernel.span,
            )
    extra = sorted(set(dims) - set(kernel.dims))
    if extra:
        message = f"the kernel has no dimension `{extra[0]}`"
        _raise(kernel, "contract/unknown-dim", message, kernel.span, "it has " + ", ".join(kernel.dims))


class _Layout:
    """Reads the top level: contract, grid, shared memory, roles."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.kernel = instance.kernel
        self.errors: list[Diagnostic] = []

    def run(self) -> None:
        self.globals()
        for stmt in self.kernel.body:
            if isinstance(stmt, n.Assign):
                self.let(stmt)
            elif isinstance(stmt, n.Require):
                for condition in stmt.conditions:
                    self.require(condition)
        self.stop()
        self.launch()
        self.shared()
        self.tensor()
        self.stop()

    def stop(self) -> None:
        if self.errors:
            raise KernelErrors(self.errors, self.kernel.source)

    def refuse(self, code: str, message: str, span: Span, help: str = "") -> None:
        self.errors.append(error(code, message, span, help=help))

    def value(self, expr: n.Expr, what: str) -> Any:
        """The launch-time value of `expr`; 1 after an error, so that one cause gives one diagnostic."""
        try:
            return evaluate(expr, self.instance.values)
        except EvaluationError as e:
            self.refuse("type/not-constant", f"{what} must be known at launch: {e.message}", e.span)
            return 1

    def natural(self, expr: n.Expr, what: str, most: int = MAX_AXIS) -> int:
        value = self.value(expr, what)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
            self.refuse("type/extent", f"{what} must be an integer in 1..{most}, here {value}", expr.span)
            return 1
        return value

    def globals(self) -> None:
        for param in self.kernel.params:
            shape = tuple(self.natural(axis, f"an axis of `{param.name}`") for axis in param.shape)
            self.instance.buffers[param.name] = Buffer(
                param.name, "global", DType(param.dtype), shape, param.output
            )

    def let(self, stmt: n.Assign) -> None:
        """A name known at launch joins `values`; one that depends on block or warp stays a run-time name."""
        names = {e.id for e in n.walk_expr(stmt.value) if isinstance(e, n.Name)}
        calls = {e.name for e in n.walk_expr(stmt.value) if isinstance(e, n.Call)}
        if (
            len(stmt.targets) != 1
            or not names <= set(self.instance.values)
            or calls - {"ceil_div", "min", "max"}
        ):
            return
        self.instance.values[stmt.targets[0]] = self.value(stmt.value, f"`{stmt.targets[0]}`")

    def require(self, condition: n.Expr) -> None:
        try:
            if evaluate(condition, self.instance.values):
                return
            why = self.explain(condition)
        except EvaluationError as e:
            why = e.message
        text = expr_text(condition)
        self.refuse(
            "contract/violated",
            f"the contract `{text}` does not hold: {why}",
            condition.span,
            self.advice(condition),
        )

    def explain(self, condition: n.Expr) -> str:
        names = [e.id for e in n.walk_expr(condition) if isinstance(e, n.Name)]
        parts = [f"{name} = {self.instance.values[name]}" for name in dict.fromkeys(names)]
        for buffer in self.instance.buffers.values():
            param = next(p for p in self.kernel.params if p.name == buffer.name)
            last = param.shape[-1]
            if len(buffer.shape) > 1 and isinstance(last, n.Name) and last.id in names:
                parts.append(
                    f"the row stride of `{buffer.name}` is {buffer.shape[-1] * buffer.dtype.bytes} bytes"
                )
        return ", ".join(parts)

    def advice(self, condition: n.Expr) -> str:
        match condition:
            case n.Compare(
                op="==",
                left=n.Binary(op="%", left=n.Name(id=name), right=n.Int(value=step)),
                right=n.Int(value=0),
            ):
                value = int(self.instance.values[name])
                padded = -(-value // step) * step
                return f"pad {name} to {padded}, or use a kernel whose contract admits {name} = {value}"
        return "use a kernel whose contract admits this shape"

    def launch(self) -> None:
        grids = [s for s in self.kernel.body if isinstance(s, n.Grid)]
        if len(grids) != 1:
            self.refuse(
                "type/grid", f"a kernel states grid(...) once, here {len(grids)} times", self.kernel.span
            )
        else:
            self.instance.blocks = self.natural(grids[0].blocks, "the grid", 2**31 - 1)
            self.cluster()
        first = 0
        roles = []
        for role in self.kernel.roles:
            count = self.natural(role.warps, "a role's size", 32)
            warps = 4 * count if role.warpgroups else count
            if role.warpgroups and first % 4:
                message = f"the warpgroup role `{role.name}` starts at warp {first}, not at a multiple of 4"
                self.refuse("type/warpgroup-alignment", message, role.span, "place warpgroup roles first")
            roles.append(RoleInfo(role.name, first, warps, role.warpgroups, role))
            first += warps
        self.instance.roles = tuple(roles)
        if not roles:
            self.refuse(
                "type/no-role",
                "the kernel has no role",
                self.kernel.span,
                'add `with role("name", warps=4):`',
            )
        elif first * 32 > MAX_THREADS:
            self.refuse("res/threads", f"{first * 32} threads a CTA, over {MAX_THREADS}", roles[-1].node.span)
        names = [r.name for r in roles]
        for role in self.kernel.roles:
            if names.count(role.name) > 1:
                self.refuse("type/duplicate-name", f"two roles are called `{role.name}`", role.span)
                break

    def cluster(self) -> None:
        """Neighbouring CTAs along x. PTX ISA: at most 8 on every chip; the grid is made of whole clusters."""
        declared = [s for s in self.kernel.body if isinstance(s, n.Cluster)]
        if not declared:
            return
        stmt, blocks = declared[0], self.instance.blocks
        if len(declared) > 1:
            self.refuse("type/cluster", "a kernel states cluster(...) once", declared[1].span)
        if not admits(">=sm_90", self.instance.arch):
            message = f"clusters need sm_90 or later, the target is {self.instance.arch}"
            self.refuse("arch/unsupported", message, stmt.span)
            return
        self.instance.cluster = size = self.natural(stmt.size, "a cluster", MAX_CLUSTER)
        if blocks % size:
            message = f"a grid of {blocks} CTAs is not made of whole clusters of {size}"
            help = f"grid(ceil_div(n, {size}) * {size}), and let the last CTAs find no work"
            self.refuse("res/cluster-grid", message, stmt.span, help)

    def shared(self) -> None:
        """Swizzled buffers first (they need the coarse alignment), then plain ones, then mbarriers. Overlays
        take no bytes of their own; what lies under a swizzled one needs its alignment."""
        declared = [s for s in self.kernel.body if isinstance(s, n.Shared)]
        buffers = {s.name: self.buffer(s) for s in declared}
        under = {s.name: s for s in declared if s.overlay is None}
        over = place_overlays(declared, buffers, self.value, self.refuse)
        coarse = {root for root, _, buffer in over.values() if buffer.swizzle}
        offset = 0
        for stmt in sorted(under.values(), key=lambda s: s.swizzle is None):
            buffer = buffers[stmt.name]
            step = SWIZZLE_ALIGNMENT if buffer.swizzle or stmt.name in coarse else BUFFER_ALIGNMENT
            offset = -(-offset // step) * step
            self.instance.buffers[stmt.name] = replace(buffer, offset=offset)
            offset += buffer.bytes
        for name, (root, start, buffer) in over.items():
            self.instance.buffers[name] = replace(buffer, offset=self.instance.buffers[root].offset + start)
        offset = -(-offset // 8) * 8
        for ring in (s for s in self.kernel.body if isinstance(s, n.MBarrier)):
            count = 1 if ring.count is None else self.natural(ring.count, "a number of mbarriers", 512)
            arrivals = self.natural(ring.arrivals, "arrivals", 2**20 - 1)
            self.instance.barriers[ring.name] = BarrierType(
                ring.name, count, arrivals, offset, ring.count is None
            )
            offset += 8 * count
        if any(isinstance(s, n.TensorMemory) for s in self.kernel.body):
            self.instance.tensor_slot = offset
            offset += 8
        self.instance.shared_bytes = offset

    def tensor(self) -> None:
        """Tensor memory: 128 lanes x 512 columns of 32 bits (PTX ISA, "Tensor Memory")."""
        placed: list[Buffer] = []
        for stmt in (s for s in self.kernel.body if isinstance(s, n.TensorMemory)):
            shape = tuple(self.natural(axis, f"an axis of `{stmt.name}`", 2**16) for axis in stmt.shape)
            column = self.value(stmt.column, "column")
            dtype = DType(stmt.dtype)
            if len(shape) < 2 or shape[-2] != TENSOR_LANES or shape[-1] * dtype.bytes % 4:
                message = f"tensor memory is [..., {TENSOR_LANES} lanes, whole 32-bit columns]"
                self.refuse("type/tensor-memory", f"{message}, here {list(shape)}", stmt.span)
                continue
            buffer = Buffer(stmt.name, "tensor", dtype, shape, offset=column)
            end = column + buffer.columns
            if column < 0 or end > TENSOR_COLUMNS:
                message = (
                    f"`{stmt.name}` reaches over columns {column} to {end - 1}; there are {TENSOR_COLUMNS}"
                )
                self.refuse("res/tensor-capacity", message, stmt.span)
            for other in placed:
                if column < other.offset + other.columns and other.offset < end:
                    message = f"`{stmt.name}` and `{other.name}` share columns"
                    self.refuse("type/tensor-memory", message, stmt.column.span, "give each its own columns")
            placed.append(buffer)
            self.instance.buffers[stmt.name] = buffer
            self.instance.tensor_columns = max(self.instance.tensor_columns, end)

    def buffer(self, stmt: n.Shared) -> Buffer:
        shape = tuple(self.natural(axis, f"an axis of `{stmt.name}`", 2**20) for axis in stmt.shape)
        swizzle = 0 if stmt.swizzle is None else self.value(stmt.swizzle, "swizzle")
        if swizzle not in (0, 32, 64, 128):
            assert stmt.swizzle is not None
            self.refuse(
                "type/swizzle", f"swizzle is 0, 32, 64 or 128 bytes, here {swizzle}", stmt.swizzle.span
            )
            swizzle = 0
        row = shape[-1] * DType(stmt.dtype).bytes
        if swizzle and row % swizzle:
            message = (
                f"rows of `{stmt.name}` are {row} bytes, not a multiple of the swizzle span of {swizzle}"
            )
            self.refuse("type/swizzle", message, stmt.span, "choose a swizzle that divides the row")
        return Buffer(stmt.name, "shared", DType(stmt.dtype), shape, swizzle=swizzle)


__all__ = ["Instance", "RoleInfo", "admits", "instantiate"]
