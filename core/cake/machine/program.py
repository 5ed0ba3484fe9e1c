"""A typed instance as a program for one warp: calls flattened to instructions, operands as closures.

The program yields one `Instruction` at a time and takes its result back, so that different drivers (facts and
values in `machine.engine`, time in `cake.cost`) run the same steps in their own order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from cake.diagnostics import Span
from cake.ir import nodes as n
from cake.ir.evaluate import Closure, Env, EvaluationError, closure
from cake.ir.instance import Instance, RoleInfo
from cake.ir.types import BarrierType, Buffer, DTypeType, FragmentType, RegionType
from cake.kinds.primitive import Op, Operand, Primitive, Site
from cake.machine.effects import BarrierSlot, Region

MAX_IDLE = 100_000
"""A loop that only counts is cut off: it would cost the verifier without end and the GPU nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One call: what to run, how to find its operands in a warp's environment, where its result goes."""

    primitive: Primitive
    site: Site
    operands: tuple[tuple[str, Closure], ...]
    target: str | None
    task: str

    @property
    def span(self) -> Span:
        return self.site.call.span

    @property
    def name(self) -> str:
        return self.site.call.name

    def op(self, env: Env, warp: int) -> Op:
        """The execution by `warp` (its index in the role) with the operands of `env`."""
        return Op(self.site, {name: value(env) for name, value in self.operands}, warp)


@dataclass(frozen=True, slots=True, eq=False)
class Let:
    """A scalar assignment."""

    targets: tuple[str, ...]
    value: Closure


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """A fragment gets another name."""

    target: str
    source: str


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A counted loop; `depth` counts enclosing loops."""

    node: n.For
    start: Closure
    stop: Closure
    step: Closure
    body: tuple[Step, ...]
    depth: int


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    node: n.If
    condition: Closure
    body: tuple[Step, ...]
    orelse: tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Elected:
    """One thread of the scope runs the body; afterwards its warp reconverges."""

    scope: str
    body: tuple[Step, ...]


Step = Instruction | Let | Copy | Loop | Branch | Elected


@dataclass(slots=True, eq=False)
class Warp:
    """One warp's state: `index` in the CTA, `rank` in its role; role None while in the kernel's top level."""

    index: int
    role: RoleInfo
    rank: int
    env: dict[str, Any]
    elected: bool = False
    iterations: list[tuple[str, int]] = field(default_factory=list)
    idle: int = 0
    """Passes of loops since the last instruction."""
    taken: set[tuple[int, bool]] = field(default_factory=set)
    """By identity of an `if` or loop of the kernel: its condition held, or not; its body ran, or never."""


class Trips(Protocol):
    """Which iterations of a loop to run; the cost model shortens long loops here."""

    def __call__(self, loop: Loop, start: int, stop: int, step: int) -> range: ...


def all_trips(loop: Loop, start: int, stop: int, step: int) -> range:
    """Every iteration."""
    return range(start, stop, step)


class Program:
    """The steps of every role of an instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.taken: set[tuple[int, bool]] = set()
        """What the warps of all CTAs have taken; see Warp."""
        compiler = _Compiler(instance)
        self.prologue: tuple[Step, ...] = ()
        self.roles: dict[str, tuple[Step, ...]] = {}
        self.epilogue: tuple[Step, ...] = ()
        before: list[n.Stmt] = []
        after: list[n.Stmt] = []
        for stmt in instance.kernel.body:
            if isinstance(stmt, n.Role):
                self.roles[stmt.name] = compiler.block(stmt.body, "", 0)
            else:
                (after if self.roles else before).append(stmt)
        self.prologue = compiler.block(tuple(before), "", 0)
        self.epilogue = compiler.block(tuple(after), "", 0)

    def warps(self, block: int) -> list[Warp]:
        """The warps of CTA number `block`."""
        out = []
        for role in self.instance.roles:
            for rank in range(role.warps):
                env: dict[str, Any] = dict(self.instance.values)
                env.update(block=block, blocks=self.instance.blocks, warp=rank, warpgroup=rank // 4)
                env["rank"] = block % self.instance.cluster
                out.append(Warp(role.first_warp + rank, role, rank, env, taken=self.taken))
        return out

    def run(self, warp: Warp, trips: Trips = all_trips) -> Generator[Instruction, Any, None]:
        """The warp's instructions in order; send each one's result back (None where it has none)."""
        warp.env["warp"] = warp.index
        yield from _run(self.prologue, warp, trips, top=True)
        warp.env["warp"] = warp.rank
        yield from _run(self.roles[warp.role.name], warp, trips, top=False)
        warp.env["warp"] = warp.index
        yield from _run(self.epilogue, warp, trips, top=True)


def _run(steps: tuple[Step, ...], warp: Warp, trips: Trips, top: bool) -> Generator[Instruction, Any, None]:
    env = warp.env
    for step in steps:
        kind = type(step)
        if kind is Instruction:
            assert isinstance(step, Instruction)
            warp.idle = 0
            result = yield step
            if step.target is not None:
                env[step.target] = result
        elif kind is Let:
            assert isinstance(step, Let)
            value = step.value(env)
            if len(step.targets) == 1:
                env[step.targets[0]] = value
            else:
                env.update(zip(step.targets, value, strict=True))
        elif isinstance(step, Loop):
            stride = step.step(env)
            if stride == 0:
                raise EvaluationError("the loop advances by 0", step.node.step.span)
            bounds = trips(step, step.start(env), step.stop(env), stride)
            warp.taken.add((id(step.node), len(bounds) > 0))
            warp.iterations.append((step.node.variable, 0))
            for value in bounds:
                env[step.node.variable] = value
                warp.iterations[-1] = (step.node.variable, value)
                warp.idle += 1
                if warp.idle > MAX_IDLE:
                    message = f"{MAX_IDLE} passes of loops here execute no instruction"
                    raise EvaluationError(message, step.node.span)
                yield from _run(step.body, warp, trips, top)
            warp.iterations.pop()
        elif isinstance(step, Branch):
            taken = bool(step.condition(env))
            warp.taken.add((id(step.node), taken))
            yield from _run(step.body if taken else step.orelse, warp, trips, top)
        elif isinstance(step, Elected):
            if _is_elected(step.scope, warp, top):
                warp.elected = True
                yield from _run(step.body, warp, trips, top)
                warp.elected = False
        elif isinstance(step, Copy):
            env[step.target] = env[step.source]


def _is_elected(scope: str, warp: Warp, top: bool) -> bool:
    if scope == "role":
        return (warp.index if top else warp.rank) == 0
    return scope == "warp" or warp.rank % 4 == 0


class _Compiler:
    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.temporaries = 0

    def block(self, body: Sequence[n.Stmt], task: str, depth: int) -> tuple[Step, ...]:
        out: list[Step] = []
        for stmt in body:
            self.stmt(stmt, task, depth, out)
        return tuple(out)

    def stmt(self, stmt: n.Stmt, task: str, depth: int, out: list[Step]) -> None:
        match stmt:
            case n.Assign(targets=targets, value=value):
                self.assign(targets, value, task, out)
            case n.Do(call=call):
                self.instruction(call, None, task, out)
            case n.For(start=start, stop=stop, step=step, body=body):
                inner = self.block(body, task, depth + 1)
                out.append(Loop(stmt, closure(start), closure(stop), closure(step), inner, depth))
            case n.If(condition=condition, body=body, orelse=orelse):
                then, other = self.block(body, task, depth), self.block(orelse, task, depth)
                out.append(Branch(stmt, closure(condition), then, other))
            case n.OneThread(scope=scope, body=body):
                out.append(Elected(scope, self.block(body, task, depth)))
            case n.Task(name=name, body=body):
                out += self.block(body, name, depth)

    def assign(self, targets: tuple[str, ...], value: n.Expr, task: str, out: list[Step]) -> None:
        if len(targets) > 1:
            out.append(Let(targets, closure(value)))
        elif self.instance.is_primitive(value):
            self.instruction(value, targets[0], task, out)
        elif isinstance(value, n.Name) and isinstance(self.instance.types.get(id(value)), FragmentType):
            out.append(Copy(targets[0], value.id))
        elif targets[0] not in self.instance.values:
            out.append(Let(targets, closure(value)))

    def instruction(self, expr: n.Expr, target: str | None, task: str, out: list[Step]) -> None:
        """Nested calls first, each into a temporary, then the call itself."""
        primitive, site = self.instance.sites[id(expr)]
        operands: list[tuple[str, Closure]] = []
        parameters = {p.name: p for p in primitive.parameters}
        for name, bound in site.operands.items():
            closures = [self.operand(o, task, out) for o in bound]
            if parameters[name].variadic:
                operands.append((name, _tuple(closures)))
            else:
                operands.append((name, closures[0]))
        out.append(Instruction(primitive, site, tuple(operands), target, task))

    def operand(self, operand: Operand, task: str, out: list[Step]) -> Closure:
        expr, kind = operand.expr, operand.type
        if expr is None:
            value = operand.constant
            return lambda env: value
        if isinstance(kind, DTypeType):
            dtype = kind.dtype
            return lambda env: dtype
        if isinstance(kind, BarrierType):
            return self.barrier(expr, kind)
        if isinstance(kind, RegionType) and kind.remote:
            assert isinstance(expr, n.Call)
            return self.remote(expr)
        if isinstance(expr, n.Name | n.Index) and (buffer := self.buffer(expr)) is not None:
            return window(expr, buffer)
        if self.instance.is_primitive(expr):
            self.temporaries += 1
            name = f"%{self.temporaries}"
            self.instruction(expr, name, task, out)
            return lambda env: env[name]
        return closure(expr)

    def remote(self, call: n.Call) -> Closure:
        """`remote(window, rank)`: the same window in another CTA of the cluster."""
        what, rank = call.args
        assert isinstance(what, n.Name | n.Index)
        buffer = self.buffer(what)
        assert buffer is not None
        local, cta = window(what, buffer), closure(rank)
        return lambda env: replace(local(env), cta=cta(env))

    def buffer(self, expr: n.Name | n.Index) -> Buffer | None:
        name = expr.id if isinstance(expr, n.Name) else expr.base
        return self.instance.buffers.get(name)

    def barrier(self, expr: n.Expr, kind: BarrierType) -> Closure:
        name = kind.name
        if isinstance(expr, n.Call):
            local, cta = self.barrier(expr.args[0], kind), closure(expr.args[1])
            return lambda env: replace(local(env), cta=cta(env))
        if isinstance(expr, n.Index):
            item = expr.items[0]
            assert not isinstance(item, n.Range)
            at = closure(item)
            return lambda env: BarrierSlot(name, at(env))
        if kind.indexed:
            single = BarrierSlot(name, 0)
            return lambda env: single
        every = tuple(BarrierSlot(name, i) for i in range(kind.count))
        return lambda env: every


def _tuple(closures: list[Closure]) -> Closure:
    return lambda env: tuple(c(env) for c in closures)


def window(expr: n.Name | n.Index, buffer: Buffer) -> Callable[[Env], Region]:
    """The region that `expr` denotes in an environment."""
    items = expr.items if isinstance(expr, n.Index) else ()
    starts: list[Closure] = []
    sizes: list[Closure] = []
    for axis, extent in enumerate(buffer.shape):
        item = items[axis] if axis < len(items) else n.Range(None, None)
        if not isinstance(item, n.Range):
            starts.append(closure(item))
            sizes.append(_constant(1))
        elif item.start is None or item.size is None:
            starts.append(_constant(0))
            sizes.append(_constant(extent))
        else:
            starts.append(closure(item.start))
            sizes.append(closure(item.size))
    if all(isinstance(i, n.Range) and i.start is None for i in items):
        whole = Region(buffer, (0,) * len(buffer.shape), buffer.shape)
        return lambda env: whole
    return lambda env: Region(buffer, tuple(s(env) for s in starts), tuple(s(env) for s in sizes))


def _constant(value: int) -> Closure:
    return lambda env: value
