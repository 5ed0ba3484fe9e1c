"""IR -> CUDA C++: one `__global__` function per kernel instance, readable, with `#line` back to the text.

Dims, constants and names known at launch are `constexpr`. Control flow, roles and index arithmetic are
written here; every instruction is written by its primitive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from cake.codegen.expressions import MULTIPLICATIVE, SHIFT, UNARY, Scalars, group, integer
from cake.codegen.pieces import number as literal
from cake.codegen.plan import LaunchPlan, PointerParam, TensorMapParam, TensorSpec
from cake.codegen.ranges import ANY, Ranges, fits_int
from cake.codegen.writer import ELEMENT, Writer, c_name, times
from cake.ir import nodes as n
from cake.ir.arch import number
from cake.ir.instance import Instance, RoleInfo
from cake.ir.types import FLOAT, INT, BarrierType, DTypeType, FragmentType, RegionType
from cake.kinds.primitive import Lowering, Operand, Registers, Window

BUILTINS = {
    "block": "cake_block",
    "blocks": "cake_blocks",
    "rank": "cake_cta_rank",
    "warp": "cake_rank",
    "warpgroup": "cake_rank / 4",
}
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
            if line == "}":
                counted = 0
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
        self.enter(None)

    def enter(self, role: RoleInfo | None) -> None:
        """What follows is executed by `role`, or by the whole CTA."""
        self.role = role
        self.ranges = Ranges(self.instance, role)
        self.scalars = Scalars(self.scalar_of_name, self.ranges, self.instance.type_of)

    def run(self) -> Generated:
        instance, out = self.instance, self.out
        body = instance.kernel.body
        roles = [stmt for stmt in body if isinstance(stmt, n.Role)]
        before = body.index(roles[0])
        self.block(body[:before])
        for role in roles:
            self.place_role(role, first=role is roles[0])
        # What stands behind the roles is executed by all warps after their roles, as on the machine.
        self.block(tuple(stmt for stmt in body[before:] if not isinstance(stmt, n.Role)))
        entry = f"{instance.kernel.name}_kernel"
        plan = self.plan(entry)
        head = [f"// {instance.title} for {instance.arch}", ""]
        if out.maps:
            head += [MAP_TYPE, ""]
        for text in out.helpers.values():
            head += [text, ""]
        lines = [*self.signature(entry, plan), *self.prologue(), *out.lines, "}", ""]
        return Generated("\n".join([*head, *lines]), entry, plan, instance.kernel)

    # --- the frame ----------------------------------------------------------------------------------------

    def plan(self, entry: str) -> LaunchPlan:
        instance, out = self.instance, self.out
        pointers = [PointerParam(p.name) for p in instance.kernel.params if c_name(p.name) in out.pointers]
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
            (instance.cluster, 1, 1),
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
                words.append(f"{const}{ELEMENT[spec.dtype]}* __restrict__ {c_name(param.tensor)}")
        words += [f"const __grid_constant__ CUtensorMap {name}" for name in self.out.maps]
        bounds = f"__launch_bounds__({self.instance.threads}, 1)"
        head = [f'extern "C" __global__ void {bounds}', f"{entry}("]
        return [*head, ",\n".join(f"    {word}" for word in words) + ") {"]

    def prologue(self) -> list[str]:
        words = set(re.findall(r"\w+", "\n".join(self.out.lines)))
        lines = self.constants(words)
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
        if "cake_cta_rank" in words:
            # CTAs of a cluster are neighbours along x.
            lines.append(f"const int cake_cta_rank = cake_block % {self.instance.cluster};")
        if "cake_blocks" in words:
            lines.append("const int cake_blocks = static_cast<int>(gridDim.x);")
        for name, offset in sorted(self.out.placed.items(), key=lambda item: item[1]):
            lines.append(f"const unsigned {name} = cake_base{f' + {offset}' if offset else ''};")
        return ["    " + line for line in lines]

    def constants(self, words: set[str]) -> list[str]:
        """The launch-time names that the body uses."""
        lines = []
        for name, value in self.instance.values.items():
            if c_name(name) not in words:
                continue
            if isinstance(value, float):
                lines.append(f"constexpr float {c_name(name)} = {literal(value)};")
            else:
                ctype = "int" if fits_int((value, value)) else "long long"
                lines.append(f"constexpr {ctype} {c_name(name)} = {integer(value)};")
        return lines

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
        self.enter(info)
        if self.instance.tensor_columns:
            out.line(f"[[maybe_unused]] const unsigned cake_tensor = {out.tensor_base()};")
        self.scopes.append({})
        self.block(role.body)
        self.scopes.pop()
        self.enter(None)
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
        if not isinstance(stmt, n.Declaration):
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
        # The lanes meet before and after: what they did is done when the one thread speaks for the warp.
        self.out.line("__syncwarp();")
        self.scoped(f"if ({test}{self.elect()}) {{", body)
        self.elected = ""
        self.out.line("__syncwarp();")

    def elect(self) -> str:
        """The condition that one lane meets. From sm_90 on it is elect.sync, which takes the same lane every
        time: the assembler then knows that bulk copies are issued once and needs no loop around each."""
        if number(self.instance.arch) < 90:
            return "cake_lane == 0"
        text = (
            "__device__ __forceinline__ bool cake_elect() {\n    unsigned one;\n"
            '    asm volatile("{\\n\\t.reg .pred p;\\n\\telect.sync _|p, 0xffffffff;\\n\\t"\n'
            '        "selp.u32 %0, 1, 0, p;\\n\\t}" : "=r"(one));\n    return one != 0;\n}'
        )
        return f"{self.out.helper('cake_elect', text)}()"

    def loop(self, stmt: n.For) -> None:
        """Bounds that the body changes are kept as they are at its start, as the kernel's text means."""
        changed = {t for s in n.walk(stmt.body) if isinstance(s, n.Assign) for t in s.targets}
        start, stop, step = (
            self.scalar(stmt.start),
            self.bound(stmt.stop, changed),
            self.bound(stmt.step, changed),
        )
        name = c_name(stmt.variable)
        low, high = self.ranges.of(stmt.step)
        test = f"{name} < {group(stop, SHIFT)}"
        if high < 0:
            test = f"{name} > {group(stop, SHIFT)}"
        elif low <= 0:
            test = f"({step} > 0 ? {name} < {stop} : {name} > {stop})"
        spans = [self.ranges.of(e) for e in (stmt.start, stmt.stop, stmt.step)]
        # The last step leads past the end: it must fit, too.
        ahead = (spans[0][0] + spans[2][0], spans[1][1] + spans[2][1])
        ctype = "int" if all(map(fits_int, [*spans, ahead])) else "long long"
        if stmt.unroll:
            self.out.line("#pragma unroll")
        advance = f"++{name}" if step == "1" else f"{name} += {step}"
        self.out.line(f"for ({ctype} {name} = {start}; {test}; {advance}) {{")
        self.scopes.append({stmt.variable: name})
        self.block(stmt.body)
        self.scopes.pop()
        self.out.line("}")

    def bound(self, expr: n.Expr, changed: set[str]) -> str:
        text = self.scalar(expr)
        if not changed & {e.id for e in n.walk_expr(expr) if isinstance(e, n.Name)}:
            return text
        name = self.out.unique("cake_bound")
        self.out.line(f"const {self.ctype(expr)} {name} = {text};")
        return name

    def ctype(self, expr: n.Expr) -> str:
        kind = self.instance.type_of(expr)
        if kind == INT:
            return "long long" if self.scalars.wide(expr) else "int"
        return "float" if kind == FLOAT else "bool"

    def assign(self, targets: tuple[str, ...], value: n.Expr) -> None:
        if len(targets) == 2:
            assert isinstance(value, n.Call)
            self.ring(targets, *value.args)
        elif isinstance(self.instance.types.get(id(value)), FragmentType):
            self.fragment(targets[0], value)
        elif self.ranges.reads(value):
            self.scalar_name(targets[0], "0", self.ctype(value))
            known = self.find(targets[0])
            assert isinstance(known, str)
            self.call(value, None, known)
        elif targets[0] not in self.instance.values:
            self.scalar_name(targets[0], self.scalar(value), self.ctype(value))

    def ring(self, targets: tuple[str, ...], position: n.Expr, count: n.Expr) -> None:
        """`s, parity = ring(j, n)`. Where j or n names the first target, they are read before."""
        j, length = (group(self.scalar(e), MULTIPLICATIVE) for e in (position, count))
        names = {e.id for arg in (position, count) for e in n.walk_expr(arg) if isinstance(e, n.Name)}
        length = group(length, UNARY)
        second = f"{j} / {length} & 1"
        if targets[0] in names:
            kept = self.out.unique("cake_parity")
            self.out.line(f"const int {kept} = {second};")
            second = kept
        self.scalar_name(targets[0], f"{j} % {length}", "int")
        self.scalar_name(targets[1], second, "int")

    def scalar_name(self, target: str, text: str, ctype: str) -> None:
        known = self.find(target)
        if known is not None:
            self.out.line(f"{known} = {text};")
            return
        if ctype in ("int", "long long"):
            ctype = "int" if fits_int(self.ranges.known.get(target, ANY)) else "long long"
        self.scopes[-1][target] = c_name(target)
        self.out.line(f"{ctype} {c_name(target)} = {text};")

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
            registers = self.out.declare(c_name(target), kind)
            self.scopes[-1][target] = registers
            self.call(value, registers)
            return
        else:
            source = self.out.temporary(kind)
            self.call(value, source)
        if known is None:
            known = self.out.declare(c_name(target), kind)
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
        """C++ text of a scalar expression."""
        return self.scalars.text(expr)

    def scalar_of_name(self, name: str) -> str:
        known = self.find(name)
        if isinstance(known, str):
            return known
        if name in BUILTINS:
            return "cake_warp" if name == "warp" and self.role is None else BUILTINS[name]
        value = self.instance.values[name]
        if isinstance(value, float) and not isfinite(value):
            return literal(value)
        text = c_name(name)
        if not isinstance(value, float):
            self.out.constexprs[text] = int(value)
        return text

    def call(self, expr: n.Expr, result: Registers | None, target: str = "") -> None:
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
        primitive.lower(Lowering(site, args, result, target), self.out)

    def operand(self, operand: Operand) -> Any:
        expr, kind = operand.expr, operand.type
        if isinstance(kind, DTypeType):
            return kind.dtype
        if expr is None:
            if isinstance(operand.constant, str):
                return operand.constant
            return literal(operand.constant) if isinstance(operand.constant, float) else str(operand.constant)
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
        if isinstance(expr, n.Call):
            local, rank = expr.args
            return replace(self.window(local, kind), rank=self.narrow(rank))
        items = expr.items if isinstance(expr, n.Index) else ()
        buffer = kind.buffer
        origin = []
        for axis in range(len(buffer.shape)):
            item = items[axis] if axis < len(items) else n.Range(None, None)
            start = item.start if isinstance(item, n.Range) else item
            text = (
                "0"
                if start is None
                else self.narrow(start)
                if buffer.space != "global"
                else self.scalar(start)
            )
            if start is not None:
                self.out.origins[text] = self.ranges.of(start)
            origin.append(text)
        return Window(replace(buffer, name=c_name(buffer.name)), tuple(origin), kind.window, kind.shape)

    def narrow(self, expr: n.Expr) -> str:
        """An index of shared memory, whose addresses have 32 bits."""
        text = self.scalar(expr)
        return f"static_cast<int>({text})" if self.scalars.wide(expr) else text

    def barrier(self, expr: n.Expr, kind: BarrierType) -> str | tuple[str, int]:
        """The address of one mbarrier, of another CTA where it is remote; of an array (first, count)."""
        if isinstance(expr, n.Call):
            local = self.barrier(expr.args[0], kind)
            assert isinstance(local, str)
            return self.out.remote_address(local, self.narrow(expr.args[1]))
        first = self.out.base(c_name(kind.name), kind.offset)
        if isinstance(expr, n.Index):
            item = expr.items[0]
            assert not isinstance(item, n.Range)
            return f"{first} + {times(self.narrow(item), 8)}"
        return first if kind.indexed else (first, kind.count)
