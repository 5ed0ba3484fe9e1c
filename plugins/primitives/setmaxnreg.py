"""setmaxnreg_dec, setmaxnreg_inc: a warpgroup gives registers back to the CTA's pool, or takes some

Takes
    `n`, the registers a thread has afterwards: a multiple of 8 from 24 to 256. All warps of a warpgroup
    execute it.
Touches
    Nothing. Registers above `n` are lost by a decrease.
Completes when
    A decrease at once; an increase when the pool holds enough, so decreases elsewhere come first.
Source
    PTX ISA, "setmaxnreg" and its target notes (sm_90a, sm_100a, sm_120a).
"""

from __future__ import annotations

from collections.abc import Sequence

from cake.ir.types import Type
from cake.kinds.primitive import Bad, Good, Lowering, Op, Parameters, Primitive, Site, Use, Writer, parameter
from cake.machine.effects import Effect, SetRegisters


class Setmaxnreg(Primitive):
    """setmaxnreg.dec and .inc."""

    names = ("setmaxnreg_dec", "setmaxnreg_inc")
    archs = "sm_90a|sm_100a|sm_120a"
    warpgroup = True
    parameters = (parameter("count", "int"),)

    def signature(self, site: Site) -> Type | None:
        count = site.integer("count")
        if count % 8 or not 24 <= count <= 256:
            raise site.refuse("count", f"a register count is a multiple of 8 from 24 to 256, not {count}")
        site.need_warpgroups()
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        return (SetRegisters(op.args["count"], op.site.call.name.endswith("_inc")),)

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        direction = op.site.call.name.rpartition("_")[2]
        out.asm(f"setmaxnreg.{direction}.sync.aligned.u32 {op.site.integer('count')};")

    cases = (
        Good(
            "from the loaders to the others",
            """
@kernel(arch="sm_90a")
def share(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("idle", warpgroups=1):
        setmaxnreg_dec(24)
    with role("row", warpgroups=2):
        setmaxnreg_inc(240)
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
""",
            dims={"N": 256},
            expect=lambda inputs: {"y": inputs["x"]},
        ),
        Good(
            "on Blackwell",
            """
@kernel(arch="sm_100a")
def share(x: Global[f32, N], y: GlobalOut[f32, N]):
    grid(1)
    with role("row", warpgroups=1):
        setmaxnreg_dec(96)
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
""",
            dims={"N": 128},
            expect=lambda inputs: {"y": inputs["x"]},
        ),
        Bad(
            "no multiple of 8",
            """
@kernel(arch="sm_90a")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warpgroups=1):
        setmaxnreg_dec(100)  #! type/operand
""",
            dims={"N": 32},
        ),
        Bad(
            "in a role of single warps",
            """
@kernel(arch="sm_90a")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warps=4):
        setmaxnreg_dec(96)  #! type/scope
""",
            dims={"N": 32},
        ),
        Bad(
            "where it does not exist",
            """
@kernel(arch="sm_80")
def wrong(x: Global[f32, N]):
    grid(1)
    with role("row", warpgroups=1):
        setmaxnreg_dec(96)  #! arch/unsupported
""",
            dims={"N": 32},
        ),
    )
