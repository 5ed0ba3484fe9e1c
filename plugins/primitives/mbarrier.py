"""mbarrier: initialize, announce bytes, arrive, wait (sm_90)

Takes
    `mbarrier_init(bar)` one mbarrier or a whole array, in one thread; `fence_mbarrier_init()` after it;
    `expect_bytes(bar, window, ..., n)` one arrival that first adds the windows' bytes (or n) to the
    expected bytes; `arrive(bar)` one arrival, of the elected thread or of each executing warp, also on an
    mbarrier of another CTA of the cluster (`arrive(remote(bar, r))`, released to the cluster); `wait(bar,
    parity)`, with `scope="cluster"` to learn what warps of other CTAs did before they arrived.
Touches
    Nothing but the mbarriers. An arrival releases, a wait acquires.
Completes when
    A phase completes when all its arrivals and all its bytes have come; `wait(bar, p)` passes once the
    phase of parity p is complete.
Source
    PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier", "membar / fence".
"""

from __future__ import annotations

from collections.abc import Sequence

from cake.ir.types import BarrierType, RegionType, Type
from cake.kinds.primitive import Bad, Good, Lowering, Op, Parameters, Primitive, Site, Use, Writer, parameter
from cake.machine.effects import Arrive, BarrierSlot, Effect, InitBarrier, Region, Wait


def one_barrier(site: Site, name: str = "barrier") -> BarrierType:
    """The operand's type, one mbarrier."""
    kind = site.operand(name).type
    assert isinstance(kind, BarrierType)
    if not kind.indexed:
        raise site.refuse(
            name, f"`{kind.name}` is an array of {kind.count} mbarriers", help=f"{kind.name}[i]"
        )
    return kind


class MbarrierInit(Primitive):
    """Sets the arrival count and starts phase 0."""

    names = ("mbarrier_init",)
    archs = ">=sm_90"
    single = True
    collective = False
    parameters = (parameter("barrier", "barrier"),)

    def signature(self, site: Site) -> Type | None:
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        kind = op.site.operand("barrier").type
        assert isinstance(kind, BarrierType)
        slots = op.args["barrier"]
        if isinstance(slots, BarrierSlot):
            slots = (slots,)
        return [InitBarrier(slot, kind.arrivals) for slot in slots]

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        kind = op.site.operand("barrier").type
        assert isinstance(kind, BarrierType)
        address, count = (
            op.args["barrier"] if isinstance(op.args["barrier"], tuple) else (op.args["barrier"], 1)
        )
        for i in range(count):
            slot = f"{address} + {8 * i}" if i else address
            out.asm(f"mbarrier.init.shared::cta.b64 [%0], {kind.arrivals};", inputs=[("r", slot)])

    cases = (
        Good(
            "an array and a single one",
            """
@kernel(arch="sm_90a")
def start(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    a = MBarrier[3](arrivals=1)
    b = MBarrier(arrivals=2)
    with one_thread():
        mbarrier_init(a)
        mbarrier_init(b)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        wait(a[2], 1)
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
""",
            dims={"N": 32},
            expect=lambda i: {"y": i["x"]},
        ),
        Good(
            "one of an array",
            """
@kernel(arch="sm_100a")
def start(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    a = MBarrier[2](arrivals=1)
    with one_thread():
        mbarrier_init(a[1])
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        wait(a[1], 1)
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
""",
            dims={"N": 32},
            expect=lambda i: {"y": i["x"]},
        ),
        Bad(
            "by every thread",
            """
@kernel(arch="sm_90a")
def start(y: GlobalOut[f32, N]):
    grid(1)
    a = MBarrier(arrivals=1)
    mbarrier_init(a)  #! type/one-thread
    with role("all", warps=1):
        i = 1
""",
            dims={"N": 1},
        ),
    )


class ExpectBytes(Primitive):
    """mbarrier.arrive.expect_tx."""

    names = ("expect_bytes",)
    archs = ">=sm_90"
    single = True
    collective = False
    parameters = (parameter("barrier", "barrier"), parameter("windows", "shared", "int", variadic=True))

    def signature(self, site: Site) -> Type | None:
        one_barrier(site)
        if not site.operands["windows"]:
            raise site.refuse(
                None, "expect_bytes needs the windows that will be filled, or a number of bytes"
            )
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        total = sum(w.bytes if isinstance(w, Region) else w for w in op.args["windows"])
        return (Arrive(op.args["barrier"], total),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        fixed, words = 0, []
        for operand, text in zip(op.site.operands["windows"], op.args["windows"], strict=True):
            if isinstance(operand.type, RegionType):
                fixed += operand.type.bytes
            elif isinstance(operand.constant, int):
                fixed += operand.constant
            else:
                words.append(f"static_cast<unsigned>({text})")
        total = " + ".join([f"{fixed}u", *words])
        out.asm(
            "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;",
            inputs=[("r", op.args["barrier"]), ("r", total)],
        )

    cases = (
        Good(
            "the bytes of two windows",
            """
@kernel(arch="sm_90a")
def pair(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 2, 8, 64](swizzle=128)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a, s[0], s[1])
            tma_load(s[0], x[0:+8, 0:+64], a)
            tma_load(s[1], x[8:+8, 0:+64], a)
        wait(a, 0)
        with one_thread():
            tma_store(y[0:+8, 0:+64], s[0])
            tma_store(y[8:+8, 0:+64], s[1])
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 13, "N": 40},
            expect=lambda i: {"y": i["x"]},
        ),
        Good(
            "a number of bytes",
            """
@kernel(arch="sm_120a")
def one(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 8, 64](swizzle=128)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a, 1024)
            tma_load(s[:, :], x[0:+8, 0:+64], a)
        wait(a, 0)
        with one_thread():
            tma_store(y[0:+8, 0:+64], s[:, :])
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 8, "N": 64},
            expect=lambda i: {"y": i["x"]},
        ),
        Bad(
            "of no window",
            """
@kernel(arch="sm_90a")
def none(y: GlobalOut[f32, N]):
    grid(1)
    a = MBarrier(arrivals=1)
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a)  #! type/operand
""",
            dims={"N": 1},
        ),
    )


class ArriveOn(Primitive):
    """mbarrier.arrive: by the elected thread, or once for each executing warp after its lanes met."""

    names = ("arrive",)
    archs = ">=sm_90"
    collective = False
    parameters = (parameter("barrier", "barrier", "remote_barrier"),)

    def signature(self, site: Site) -> Type | None:
        one_barrier(site)
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (Arrive(op.args["barrier"]),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(2)

    def lower(self, op: Lowering, out: Writer) -> None:
        where = "cluster" if one_barrier(op.site).remote else "cta"
        text = f"mbarrier.arrive.release.{where}.shared::{where}.b64 _, [%0];"
        if op.site.scope.elected:
            out.asm(text, inputs=[("r", op.args["barrier"])])
            return
        out.line("__syncwarp();")
        out.line(f"if ({out.lane} == 0) {{")
        out.asm(text, inputs=[("r", op.args["barrier"])])
        out.line("}")

    cases = (
        Good(
            "one arrival a warp",
            """
@kernel(arch="sm_90a")
def meet(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    a = MBarrier(arrivals=2)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=2):
        arrive(a)
        wait(a, 0)
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
""",
            dims={"N": 32},
            expect=lambda i: {"y": i["x"]},
        ),
        Good(
            "one arrival of a thread",
            """
@kernel(arch="sm_100a")
def meet(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=2):
        with one_thread():
            arrive(a)
        wait(a, 0)
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
""",
            dims={"N": 32},
            expect=lambda i: {"y": i["x"]},
        ),
        Bad(
            "on a whole array",
            """
@kernel(arch="sm_90a")
def meet(y: GlobalOut[f32, N]):
    grid(1)
    a = MBarrier[2](arrivals=1)
    with role("all", warps=1):
        arrive(a)  #! type/operand
""",
            dims={"N": 1},
        ),
    )


class WaitFor(Primitive):
    """mbarrier.try_wait.parity in a loop."""

    names = ("wait",)
    archs = ">=sm_90"
    collective = False
    parameters = (
        parameter("barrier", "barrier"),
        parameter("parity", "int"),
        parameter("scope", "text", default="cta"),
    )
    uses = ("mbarrier.latency",)

    def signature(self, site: Site) -> Type | None:
        one_barrier(site)
        if site.text("scope") not in ("cta", "cluster"):
            raise site.refuse("scope", f'the scope is "cta" or "cluster", not "{site.text("scope")}"')
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (Wait(op.args["barrier"], op.args["parity"], op.args["scope"]),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(3, {}, parameters("mbarrier.latency"))

    def lower(self, op: Lowering, out: Writer) -> None:
        scope = op.site.text("scope")
        name = "cake_wait" if scope == "cta" else "cake_wait_cluster"
        out.helper(
            name,
            f"__device__ __forceinline__ void {name}(unsigned barrier, unsigned parity) {{\n"
            '    asm volatile("{\\n\\t.reg .pred done;\\n"\n'
            '        "again:\\n\\t"\n'
            f'        "mbarrier.try_wait.parity.acquire.{scope}.shared::cta.b64 done, [%0], %1;\\n\\t"\n'
            '        "@!done bra again;\\n\\t}"\n'
            '        :: "r"(barrier), "r"(parity) : "memory");\n}',
        )
        out.line(f"{name}({op.args['barrier']}, {op.args['parity']});")

    cases = (
        Good(
            "the phase before the first",
            """
@kernel(arch="sm_90a")
def start(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        wait(a, 1)
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
""",
            dims={"N": 32},
            expect=lambda i: {"y": i["x"]},
        ),
        Good(
            "two phases in turn",
            """
@kernel(arch="sm_120a")
def turn(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        for i in range(4):
            arrive(a)
            wait(a, i & 1)
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
""",
            dims={"N": 32},
            expect=lambda i: {"y": i["x"]},
        ),
        Bad(
            "of another CTA",
            """
@kernel(arch="sm_90a")
def wrong(y: GlobalOut[f32, N]):
    grid(2)
    cluster(2)
    a = MBarrier(arrivals=1)
    with role("all", warps=1):
        wait(remote(a, 1), 0)  #! type/operand
""",
            dims={"N": 1},
        ),
        Bad(
            "without a parity",
            """
@kernel(arch="sm_90a")
def wrong(y: GlobalOut[f32, N]):
    grid(1)
    a = MBarrier(arrivals=1)
    with role("all", warps=1):
        wait(a)  #! type/arguments
""",
            dims={"N": 1},
        ),
    )
