"""IR -> CUDA C++: one `__global__` function per kernel instance, readable, with `#line` back to the text.

Dims and constants are literals of the instance. Control flow, roles and index arithmetic are written here;
every instruction is written by its primitive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cake.codegen.pieces import number
from cake.codegen.plan import LaunchPlan, PointerParam, TensorMapParam, TensorSpec
from cake.codegen.writer import ELEMENT, Writer
from cake.ir import nodes as n
from cake.ir.instance import Instance, RoleInfo
from cake.ir.types import BarrierType, Buffer, DTypeType, FragmentType, RegionType, ScalarType
from cake.kinds.primitive import Lowering, Operand, Registers, Window

BUILTINS = {
    "block": "cake_block",
    "blocks": "static_cast<int>(gridDim.x)",
    "warp": "cake_rank",
    "warpgroup": "(cake_rank / 4)",
}
_RESERVED_WORDS = """alignas asm auto bool break case catch char class const continue default delete do double
else enum extern float for goto if inline int long namespace new operator private public register return short
signed sizeof static struct switch template this throw try typedef union unsigned using virtual void volatile
while"""
RESERVED = frozenset(_RESERVED_WORDS.split())
MAP_TYPE = "struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };"


@dataclass(frozen=True, slots=True)
class Generated:
    """CUDA text, the name of its kernel, and how to launch it."""

    source: str
    entry: str
    plan: LaunchPlan
    kernel: n.Kernel

    @property
    def listing(self) -> str:
        """The text for reading: in place of `#line` directives, the kernel's own lines as comments."""
        out: list[str] = []
        lines = self.kernel.source.lines
        counted = shown = 0
        for line in self.source.split("\n"):
            if line.startswith("#line"):
                counted = int(line.split()[1])
                continue
            if counted:
                if counted != shown and counted <= len(lines):
                    pad = " " * (len(line) - len(line.lstrip()))
                    out.append(f"{pad}// {counted}: {lines[counted - 1].strip()}")
                shown, counted = counted, counted + 1
            out.append(line)
        return "\n".join(out)


def generate(instance: Instance) -> Generated:
    """The CUDA text of an instance; deterministic."""
    return _Generator(instance).run()


class _Generator:
    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.out = Writer(instance)
        self.scopes: list[dict[str, str | Registers]] = [{}]
        self.elected = ""
        self.role: RoleInfo | None = None

    def run(self) -> Generated:
        instance, out = self.instance, self.out
        first = True
        for stmt in instance.kernel.body:
            if isinstance(stmt, n.Role):
                self.place_role(stmt, first)
                first = False
            else:
                self.stmt(stmt)
        entry = f"cake_{instance.kernel.name}"
        plan = self.plan(entry)
        head = [f"// {instance.title} for {instance.arch}", ""]
        if out.maps:
            head += [MAP_TYPE, ""]
        for text in out.helpers.values():
            head += [text, ""]
        body = [*self.signature(entry, plan), *self.prologue(), *out.lines, "}", ""]
        return Generated("\n".join([*head, *body]), entry, plan, instance.kernel)

    # --- the frame ----------------------------------------------------------------------------------------

    def plan(self, entry: str) -> LaunchPlan:
        instance, out = self.instance, self.out
        pointers = [PointerParam(p.name) for p in instance.kernel.params if _name(p.name) in out.pointers]
        params: tuple[PointerParam | TensorMapParam, ...] = (*pointers, *out.maps.values())
        tensors = {
            p.name: TensorSpec(p.dtype, instance.buffers[p.name].shape, "out" if p.output else "in")
            for p in instance.kernel.params
        }
        return LaunchPlan(
            entry,
            instance.arch,
            (instance.blocks, 1, 1),
            (instance.threads, 1, 1),
            (1, 1, 1),
            self.shared_bytes(),
            params,
            tensors,
        )

    def swizzled(self) -> bool:
        return any(b.swizzle for b in self.instance.buffers.values())

    def shared_bytes(self) -> int:
        """Swizzle patterns repeat every 1024 bytes of address, and nothing promises that dynamic shared
        memory starts at such a multiple: the kernel rounds its base up, in slack that is asked for here."""
        return self.instance.shared_bytes + (1024 if self.swizzled() else 0)

    def signature(self, entry: str, plan: LaunchPlan) -> list[str]:
        words = []
        for param in plan.params:
            if isinstance(param, PointerParam):
                spec = plan.tensors[param.tensor]
                const = "" if spec.access == "out" else "const "
                words.append(f"{const}{ELEMENT[spec.dtype]}* __restrict__ {_name(param.tensor)}")
        words += [f"const __grid_constant__ CUtensorMap {name}" for name in self.out.maps]
        bounds = f"__launch_bounds__({self.instance.threads}, 1)"
        return [f'extern "C" __global__ void {bounds}', f"{entry}({', '.join(words)}) {{"]

    def prologue(self) -> list[str]:
        lines = []
        if self.instance.shared_bytes:
            base = "static_cast<unsigned>(__cvta_generic_to_shared(cake_shared))"
            if self.swizzled():
                base = f"({base} + 1023u) & ~1023u"
            lines += [
                "extern __shared__ __align__(1024) unsigned char cake_shared[];",
                f"[[maybe_unused]] const unsigned cake_base = {base};",
            ]
        lines += [
            "[[maybe_unused]] const int cake_block = static_cast<int>(blockIdx.x);",
            "[[maybe_unused]] const int cake_lane = static_cast<int>(threadIdx.x) % 32;",
            "[[maybe_unused]] const int cake_warp =",
            "    __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);",
        ]
        return ["    " + line for line in lines]

    def place_role(self, role: n.Role, first: bool) -> None:
        """One branch of a single if/else chain: setmaxnreg takes effect only so."""
        info = next(r for r in self.instance.roles if r.node is role)
        out, last = self.out, info.first_warp + info.warps
        out.place(role.span.line)
        if len(self.instance.roles) == 1:
            out.line("{")
        elif first:
            out.line(f"if (cake_warp < {last}) {{")
        else:
            closing = last == self.instance.warps
            self.reopen("} else {" if closing else f"}} else if (cake_warp < {last}) {{")
        out.line(f"// role {role.name}: warps {info.first_warp} to {last - 1}")
        shift = f" - {info.first_warp}" if info.first_warp else ""
        out.line(f"[[maybe_unused]] const int cake_rank = cake_warp{shift};")
        out.line("[[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;")
        self.role = info
        self.scopes.append({})
        self.block(role.body)
        self.scopes.pop()
        self.role = None
        if len(self.instance.roles) == 1 or last == self.instance.warps:
            out.line("}")

    def reopen(self, text: str) -> None:
        """Close a branch and open the next one of the same chain."""
        self.out.notes[-1].clear()
        self.out.line(text)

    # --- statements ---------------------------------------------------------------------------------------

    def block(self, body: tuple[n.Stmt, ...]) -> None:
        for stmt in body:
            self.stmt(stmt)

    def stmt(self, stmt: n.Stmt) -> None:
        out = self.out
        if not isinstance(stmt, n.Require | n.Grid | n.Shared | n.MBarrier):
            out.place(stmt.span.line)
        match stmt:
            case n.Assign(targets=targets, value=value):
                self.assign(targets, value)
            case n.Do(call=call):
                self.call(call, None)
            case n.For():
                self.loop(stmt)
            case n.If(condition=condition, body=body, orelse=orelse):
                self.scoped(f"if ({self.scalar(condition)}) {{", body, close=not orelse)
                if orelse:
                    self.reopen("} else {")
                    self.scoped("", orelse)
            case n.OneThread(scope=scope, body=body):
                self.one_thread(scope, body)
            case n.Task(name=name, body=body):
                out.line(f"// task {name}")
                self.block(body)

    def scoped(self, head: str, body: tuple[n.Stmt, ...], *, close: bool = True) -> None:
        if head:
            self.out.line(head)
        self.scopes.append({})
        self.block(body)
        self.scopes.pop()
        if close:
            self.out.line("}")

    def one_thread(self, scope: str, body: tuple[n.Stmt, ...]) -> None:
        rank = "cake_rank" if self.role else "cake_warp"
        test = {"role": f"{rank} == 0 && ", "warpgroup": f"{rank} % 4 == 0 && ", "warp": ""}[scope]
        self.elected = scope
        self.scoped(f"if ({test}cake_lane == 0) {{", body)
        self.elected = ""
        self.out.line("__syncwarp();")

    def loop(self, stmt: n.For) -> None:
        start, stop, step = (self.scalar(e) for e in (stmt.start, stmt.stop, stmt.step))
        name = _name(stmt.variable)
        if stmt.unroll:
            self.out.line("#pragma unroll")
        advance = f"++{name}" if step == "1" else f"{name} += {step}"
        self.out.line(f"for (int {name} = {start}; {name} < {stop}; {advance}) {{")
        self.scopes.append({stmt.variable: name})
        self.block(stmt.body)
        self.scopes.pop()
        self.out.line("}")

    def assign(self, targets: tuple[str, ...], value: n.Expr) -> None:
        if len(targets) == 2:
            assert isinstance(value, n.Call)
            j, count = (self.scalar(e) for e in value.args)
            self.scalar_name(targets[0], f"{j} % {count}")
            self.scalar_name(targets[1], f"{j} / {count} & 1")
        elif isinstance(self.instance.types.get(id(value)), FragmentType):
            self.fragment(targets[0], value)
        elif targets[0] not in self.instance.values:
            self.scalar_name(targets[0], self.scalar(value), self.instance.types.get(id(value)))

    def scalar_name(self, target: str, text: str, kind: Any = None) -> None:
        known = self.find(target)
        if known is not None:
            self.out.line(f"{known} = {text};")
            return
        ctype = (
            {"float": "float", "bool": "bool"}.get(kind.kind, "int")
            if isinstance(kind, ScalarType)
            else "int"
        )
        self.scopes[-1][target] = _name(target)
        self.out.line(f"{ctype} {_name(target)} = {text};")

    def fragment(self, target: str, value: n.Expr) -> None:
        """A fragment gets its name: its own registers at first, a copy into them afterwards."""
        known = self.find(target)
        kind = self.instance.types[id(value)]
        assert isinstance(kind, FragmentType)
        if isinstance(value, n.Name):
            source = self.find(value.id)
            assert isinstance(source, Registers)
        elif self.instance.primitive(value).in_place:
            self.call(value, None)
            return
        elif known is None:
            registers = self.out.declare(_name(target), kind)
            self.scopes[-1][target] = registers
            self.call(value, registers)
            return
        else:
            source = self.out.temporary(kind)
            self.call(value, source)
        if known is None:
            known = self.out.declare(_name(target), kind)
            self.scopes[-1][target] = known
        assert isinstance(known, Registers)
        self.out.line("#pragma unroll")
        copy = f"{known.name}[i_] = {source.name}[i_];"
        self.out.line(f"for (int i_ = 0; i_ < {known.count}; ++i_) {copy}")

    def find(self, name: str) -> str | Registers | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    # --- expressions --------------------------------------------------------------------------------------

    def scalar(self, expr: n.Expr) -> str:
        """C++ text of a scalar expression; dims, constants and launch-time names become literals."""
        match expr:
            case n.Int(value=value):
                return _integer(value)
            case n.Float(value=value):
                return number(value)
            case n.Name(id=name):
                return self.scalar_of_name(name)
            case n.Unary(op=op, operand=operand):
                return f"{'-' if op == '-' else '!'}{self.grouped(operand)}"
            case n.Binary(op=op, left=left, right=right):
                return self.arithmetic(expr, op, left, right)
            case n.Compare(op=op, left=left, right=right):
                return f"{self.grouped(left)} {op} {self.grouped(right)}"
            case n.Logic(op=op, left=left, right=right):
                return f"{self.grouped(left)} {'&&' if op == 'and' else '||'} {self.grouped(right)}"
            case n.Select(condition=condition, then=then, otherwise=otherwise):
                return f"{self.grouped(condition)} ? {self.grouped(then)} : {self.grouped(otherwise)}"
            case n.Call(name="ceil_div", args=(a, b)):
                top, bottom = self.grouped(a), self.grouped(b)
                return f"({top} + {bottom} - 1) / {bottom}"
            case n.Call(name="min" | "max" as name, args=(a, b)):
                return f"{name}({self.scalar(a)}, {self.scalar(b)})"
        raise AssertionError(f"not a scalar: {expr!r}")

    def arithmetic(self, expr: n.Expr, op: str, left: n.Expr, right: n.Expr) -> str:
        if op == "/":
            return f"static_cast<float>({self.scalar(left)}) / static_cast<float>({self.scalar(right)})"
        return f"{self.grouped(left)} {'/' if op == '//' else op} {self.grouped(right)}"

    def grouped(self, expr: n.Expr) -> str:
        text = self.scalar(expr)
        return f"({text})" if " " in text and not isinstance(expr, n.Name) else text

    def scalar_of_name(self, name: str) -> str:
        known = self.find(name)
        if isinstance(known, str):
            return known
        if name in BUILTINS:
            return BUILTINS[name]
        value = self.instance.values[name]
        return _integer(value) if isinstance(value, int) else number(value)

    def call(self, expr: n.Expr, result: Registers | None) -> None:
        """Emit a primitive: its nested calls first, each into temporaries."""
        instance = self.instance
        primitive, site = instance.sites[id(expr)]
        args: dict[str, Any] = {}
        variadic = {p.name for p in primitive.parameters if p.variadic}
        for name, bound in site.operands.items():
            values = [self.operand(o) for o in bound]
            args[name] = tuple(values) if name in variadic else values[0]
        if primitive.in_place:
            held = args[primitive.in_place]
            assert isinstance(held, Registers)
            result = held
        primitive.lower(Lowering(site, args, result), self.out)

    def operand(self, operand: Operand) -> Any:
        expr, kind = operand.expr, operand.type
        if isinstance(kind, DTypeType):
            return kind.dtype
        if expr is None:
            if isinstance(operand.constant, str):
                return operand.constant
            return number(operand.constant) if isinstance(operand.constant, float) else str(operand.constant)
        if isinstance(kind, FragmentType):
            return self.fragment_operand(expr, kind)
        if isinstance(kind, RegionType):
            return self.window(expr, kind)
        if isinstance(kind, BarrierType):
            return self.barrier(expr, kind)
        if isinstance(expr, n.Text):
            return expr.value
        return self.scalar(expr)

    def fragment_operand(self, expr: n.Expr, kind: FragmentType) -> Registers:
        if isinstance(expr, n.Name):
            known = self.find(expr.id)
            assert isinstance(known, Registers)
            return known
        registers = self.out.temporary(kind)
        self.call(expr, registers)
        return registers

    def window(self, expr: n.Expr, kind: RegionType) -> Window:
        items = expr.items if isinstance(expr, n.Index) else ()
        buffer = kind.buffer
        origin = []
        for axis in range(len(buffer.shape)):
            item = items[axis] if axis < len(items) else n.Range(None, None)
            start = item.start if isinstance(item, n.Range) else item
            origin.append("0" if start is None else self.grouped(start))
        named = Buffer(
            _name(buffer.name),
            buffer.space,
            buffer.dtype,
            buffer.shape,
            buffer.output,
            buffer.swizzle,
            buffer.offset,
        )
        return Window(named, tuple(origin), kind.window, kind.shape)

    def barrier(self, expr: n.Expr, kind: BarrierType) -> str | tuple[str, int]:
        first = f"cake_base + {kind.offset}"
        if isinstance(expr, n.Index):
            item = expr.items[0]
            assert not isinstance(item, n.Range)
            return f"{first} + 8 * {self.grouped(item)}"
        return first if kind.indexed else (first, kind.count)


def _name(name: str) -> str:
    """An author's name in C++. Names that end in `_` belong to primitives, `cake_` to the frame."""
    taken = name in RESERVED or name.startswith("cake_") or name.endswith("_")
    return f"{name}_x" if taken else name


def _integer(value: int) -> str:
    return str(value) if -(2**31) < value < 2**31 else f"{value}LL"
