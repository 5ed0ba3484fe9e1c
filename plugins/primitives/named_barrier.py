"""named_sync, named_arrive: some warps of the CTA meet at one of the hardware barriers 1 to 15

Takes
    `named_sync(id, warps=n)`: `id` an integer 1..15 that may depend on the warp (`1 + warpgroup`), `n`
    the number of warps that meet there, the executing ones included. Barrier 0 is `cta_sync()`.
    `named_arrive(id, warps=n)`: is counted and goes on; others wait by `named_sync`.
Touches
    Nothing; it orders the generic accesses before it, of the warps that come, with what follows in those that
    wait. It is no proxy fence.
Completes when
    `n` warps have come; `named_arrive` at once.
Source
    PTX ISA, "bar{.cta}, barrier{.cta}": bar.sync and bar.arrive with a thread count.
"""

from __future__ import annotations

from collections.abc import Sequence

from cake.ir.types import Type
from cake.kinds.primitive import Bad, Good, Lowering, Op, Parameters, Primitive, Site, Use, Writer, parameter
from cake.machine.effects import Effect, Rendezvous


class _Named(Primitive):
    """Barrier `id`, counting 32 * n threads."""

    parameters = (parameter("id", "int"), parameter("warps", "int"))
    uses = ("barrier.latency",)

    def signature(self, site: Site) -> Type | None:
        known = site.operand("id").constant
        if isinstance(known, int) and not 1 <= known <= 15:
            message = f"named barriers are numbered 1 to 15, not {known}"
            raise site.refuse("id", message, help="`cta_sync()` uses barrier 0" if known == 0 else "")
        if not 1 <= site.integer("warps") <= 32:
            raise site.refuse("warps", f"a CTA has 1 to 32 warps, not {site.integer('warps')}")
        return None


class NamedSync(_Named):
    """bar.sync id, 32 * n."""

    names = ("named_sync",)

    def effects(self, op: Op) -> Sequence[Effect]:
        return (Rendezvous(op.args["id"], op.args["warps"]),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1, latency=parameters("barrier.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        threads = 32 * op.site.integer("warps")
        out.asm(f"bar.sync %0, {threads};", inputs=[("r", f"static_cast<unsigned>({op.args['id']})")])

    cases = (
        Good(
            "each warpgroup by itself",
            """
@kernel(arch="sm_80")
def turn(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 8]
    with role("row", warpgroups=2):
        v = load(x[:], vector=1, fill=0.0)
        store(s[warp], warp_sum(v))
        named_sync(1 + warpgroup, warps=4)
        store(y[:], v * 0.0 + load(s[warpgroup * 4 + 3 - warp % 4]), vector=1)
""",
            dims={"N": 256},
            expect=lambda i: {
                "y": [i["x"][32 * (w // 4 * 4 + 3 - w % 4) :][:32].sum() for w in range(8) for _ in range(32)]
            },
            rtol=1e-5,
        ),
        Good(
            "two roles meet",
            """
@kernel(arch="sm_80")
def meet(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 1]
    with role("first", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        store(s[0], warp_sum(v))
        named_sync(1, warps=2)
    with role("second", warps=1):
        named_sync(1, warps=2)
        u = load(x[:], vector=1, fill=0.0)
        store(y[:], u * 0.0 + load(s[0]), vector=1)
""",
            dims={"N": 32},
            expect=lambda i: {"y": [i["x"].sum()] * 32},
            rtol=1e-5,
        ),
        Bad(
            "the CTA's own barrier",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warps=1):
        named_sync(0, warps=1)  #! type/operand
""",
            dims={"N": 32},
        ),
        Bad(
            "more warps than a CTA has",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warps=1):
        named_sync(1, warps=33)  #! type/operand
""",
            dims={"N": 32},
        ),
    )


class NamedArrive(_Named):
    """bar.arrive id, 32 * n."""

    names = ("named_arrive",)

    def effects(self, op: Op) -> Sequence[Effect]:
        return (Rendezvous(op.args["id"], op.args["warps"], blocks=False),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        threads = 32 * op.site.integer("warps")
        out.asm(f"bar.arrive %0, {threads};", inputs=[("r", f"static_cast<unsigned>({op.args['id']})")])

    cases = (
        Good(
            "one hands over, the other waits",
            """
@kernel(arch="sm_80")
def hand_over(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    s = Shared[f32, 1]
    with role("first", warps=1):
        v = load(x[:], vector=1, fill=0.0)
        store(s[0], warp_sum(v))
        named_arrive(1, warps=2)
    with role("second", warps=1):
        named_sync(1, warps=2)
        u = load(x[:], vector=1, fill=0.0)
        store(y[:], u * 0.0 + load(s[0]), vector=1)
""",
            dims={"N": 32},
            expect=lambda i: {"y": [i["x"].sum()] * 32},
            rtol=1e-5,
        ),
        Bad(
            "barrier 0 is the CTA's",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warps=1):
        named_arrive(0, warps=2)  #! type/operand
""",
            dims={"N": 32},
        ),
    )
