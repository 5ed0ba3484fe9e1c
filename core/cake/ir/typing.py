"""Types every statement of an instance and, through its expressions, every call."""

from __future__ import annotations

from dataclasses import replace

from cake.diagnostics import Diagnostic, Span, error
from cake.ir import nodes as n
from cake.ir.binding import BUILTINS, Expressions, Refused, n_text
from cake.ir.evaluate import HELPERS
from cake.ir.instance import Instance
from cake.ir.types import (
    BOOL,
    DTYPES,
    FLOAT,
    INT,
    BarrierType,
    DTypeType,
    FragmentType,
    RegionType,
    TextType,
    Type,
    describe,
)
from cake.kinds.primitive import Scope

MAX_UNROLL = 1024
_DECLARED = n.Shared | n.TensorMemory | n.MBarrier


def check_types(instance: Instance) -> list[Diagnostic]:
    """Fill `instance.types` and `instance.sites`; the diagnostics, in order of the text."""
    checker = _Statements(instance)
    checker.run()
    return checker.errors


class _Statements(Expressions):
    """Walks the kernel's statements: declarations, scopes, control flow, assignments."""

    def run(self) -> None:
        base = self.scopes[0]
        for name, value in self.instance.values.items():
            base[name] = FLOAT if isinstance(value, float) else INT
        for name in ("block", "blocks", "rank", "warp"):
            base[name] = INT
        self.lets = set(self.instance.values) - set(self.instance.dims) - set(self.instance.constants)
        self.frozen = {
            *self.instance.values,
            *self.instance.dims,
            *self.instance.constants,
            *self.instance.buffers,
            *self.instance.barriers,
            *BUILTINS,
        }
        self._check_names()
        self._check_order()
        self.block(self.instance.kernel.body)

    def _check_names(self) -> None:
        kernel = self.instance.kernel
        seen: dict[str, Span] = {}
        declared = [(s.name, s.span) for s in kernel.body if isinstance(s, _DECLARED)]
        params = [(p.name, p.span) for p in kernel.params]
        dims = [(d, kernel.span) for d in kernel.dims]
        for name, span in [*params, *dims, *((c.name, c.span) for c in kernel.constants), *declared]:
            if name in seen or name in BUILTINS or name in DTYPES or name in HELPERS:
                self.errors.append(error("type/duplicate-name", f"`{name}` is already taken", span))
            seen[name] = span

    def _check_order(self) -> None:
        """Warps part at the first role: what stands between two roles belongs to nobody."""
        body = self.instance.kernel.body
        roles = [i for i, stmt in enumerate(body) if isinstance(stmt, n.Role)]
        for stmt in body[roles[0] : roles[-1]] if roles else ():
            if not isinstance(stmt, n.Role):
                message = "nothing may stand between two roles"
                self.errors.append(
                    error("type/between-roles", message, stmt.span, help="move it before the first role")
                )

    # --- statements ---------------------------------------------------------------------------------------

    def block(self, body: tuple[n.Stmt, ...]) -> None:
        for stmt in body:
            try:
                self.stmt(stmt)
            except Refused:
                if isinstance(stmt, n.Assign):
                    self.poisoned.update(stmt.targets)

    def stmt(self, stmt: n.Stmt) -> None:
        top = self.scope.role == "" and len(self.scopes) == 1
        match stmt:
            case n.Assign():
                self.assign(stmt)
            case n.Do(call=call):
                self.call(call, ())
            case n.For():
                self.loop(stmt)
            case n.If(condition=condition, body=body, orelse=orelse):
                self.expect(condition, BOOL, "a condition")
                for branch in (body, orelse):
                    with self.nested():
                        self.block(branch)
            case n.OneThread(scope=scope, body=body):
                self.one_thread(stmt, scope, body)
            case n.Task(body=body):
                self.block(body)
            case n.Role():
                if not top:
                    raise self.fail("type/nested-role", "roles stand at the top level of a kernel", stmt.span)
                self.role(stmt)
            case n.Require() | n.Grid() | n.Cluster() | n.Shared() | n.TensorMemory() | n.MBarrier():
                if not top:
                    raise self.fail(
                        "type/nested-declaration",
                        "declarations stand at the top level of a kernel",
                        stmt.span,
                    )

    def role(self, stmt: n.Role) -> None:
        info = next(r for r in self.instance.roles if r.node is stmt)
        outer, self.scope = self.scope, Scope(info.name, info.warps, info.warpgroups)
        with self.nested():
            self.scopes[-1]["warp"] = INT
            if info.warps % 4 == 0 and info.first_warp % 4 == 0:
                self.scopes[-1]["warpgroup"] = INT
            self.block(stmt.body)
        self.scope = outer

    def one_thread(self, stmt: n.OneThread, scope: str, body: tuple[n.Stmt, ...]) -> None:
        if self.scope.elected:
            raise self.fail("type/nested-election", "one thread is elected already", stmt.span)
        if scope == "warpgroup" and self.look_up("warpgroup") is None:
            message = f"role `{self.scope.role}` is not made of whole warpgroups"
            raise self.fail("type/nested-election", message, stmt.span)
        outer, self.scope = self.scope, replace(self.scope, elected=scope)
        self.elected_from = len(self.scopes)
        with self.nested():
            self.block(body)
        self.scope = outer

    def loop(self, stmt: n.For) -> None:
        for bound in (stmt.start, stmt.stop, stmt.step):
            self.expect(bound, INT, "a loop bound")
        if stmt.unroll:
            bounds = (stmt.start, stmt.stop, stmt.step)
            start, stop, step = (self.constant(b, "a bound of unroll(...)") for b in bounds)
            if step == 0 or len(range(start, stop, step)) > MAX_UNROLL:
                message = f"unroll(...) writes at most {MAX_UNROLL} passes out"
                raise self.fail("type/unroll", message, stmt.span, "use range(...)")
        with self.nested():
            self.declare(stmt.variable, INT, stmt.span)
            self.frozen.add(stmt.variable)
            self.block(stmt.body)
        self.frozen.discard(stmt.variable)

    def assign(self, stmt: n.Assign) -> None:
        if len(stmt.targets) > 1:
            self.ring(stmt)
            return
        (name,) = stmt.targets
        kind = self.expr(stmt.value, stmt.targets)
        if kind is None:
            raise self.fail("type/no-value", f"`{n_text(stmt.value)}` yields no value", stmt.value.span)
        if self.reads_number(stmt.value) and not self.scope.role:
            raise self.fail("type/assign", "numbers are read from memory inside roles", stmt.value.span)
        if isinstance(kind, RegionType | BarrierType | TextType | DTypeType):
            raise self.fail("type/assign", f"{describe(kind)} cannot be given a name", stmt.value.span)
        if not self.scope.role and isinstance(kind, FragmentType):
            raise self.fail("type/assign", "fragments live inside roles", stmt.value.span)
        if name in self.lets and not self.scope.role and len(self.scopes) == 1:
            self.lets.discard(name)
            return
        self.declare(name, kind, stmt.span)

    def reads_number(self, value: n.Expr) -> bool:
        """Whether a call yields a number from memory."""
        primitive, _ = self.instance.sites.get(id(value), (None, None))
        return primitive is not None and primitive.scalar

    def ring(self, stmt: n.Assign) -> None:
        value = stmt.value
        if not (
            isinstance(value, n.Call)
            and value.name == "ring"
            and len(value.args) == 2
            and len(stmt.targets) == 2
        ):
            raise self.fail(
                "type/assign", "two names are assigned by `s, parity = ring(j, STAGES)` only", stmt.span
            )
        for arg in value.args:
            self.expect(arg, INT, "an argument of ring")
        for name in stmt.targets:
            self.declare(name, INT, stmt.span)

    def declare(self, name: str, kind: Type, span: Span) -> None:
        if name in self.frozen or name in DTYPES or name in HELPERS or name == "inf":
            raise self.fail("type/assign", f"`{name}` cannot be assigned", span)
        before = self.look_up(name)
        self.poisoned.discard(name)
        if before is None:
            self.scopes[-1][name] = kind
        elif self.scope.elected and not any(name in scope for scope in self.scopes[self.elected_from :]):
            message = f"only the elected thread would see the new value of `{name}`"
            raise self.fail("type/elected-assign", message, span, "assign it outside one_thread()")
        elif before != kind:
            message = f"`{name}` is {describe(before)} and would become {describe(kind)}"
            raise self.fail("type/changes", message, span, "use another name")
