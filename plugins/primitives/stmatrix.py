"""stmatrix: an accumulator tile in 16 bits from registers to shared memory (sm_90)

Takes
    `stmatrix(s[:, row:+64, :], cast(acc, bf16))`: a bf16 or f16 fragment [m, n] in layout "wgmma" or
    "mma" into a shared window of m x n, or of p x m x n/p: p panels that each hold n/p neighbouring
    columns (a panel as wide as a swizzle span is what the copy engine stores). With `major="MN"` the window
    is n x m, rows contiguous along m: the tile is transposed on the way. Columns of a window start at
    multiples of 16 bytes.
Touches
    Writes the window through the generic proxy, each warp the rows it holds.
Completes when
    Program order, for all lanes of the warp: they meet before and after. The copy engine needs
    `fence_async()` by all writers and a rendezvous first.
Source
    PTX ISA, "stmatrix", "Matrix Fragments for mma.m16n8k16", "Register Fragments" of wgmma.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cake.ir.layouts import Accumulator
from cake.ir.layouts.legality import CHUNK, MATRIX, matrix_rows
from cake.ir.types import Type
from cake.kinds.primitive import (
    Bad,
    Good,
    Lowering,
    Memory,
    Op,
    Parameters,
    Primitive,
    Registers,
    Site,
    Use,
    Window,
    Writer,
    parameter,
)
from cake.machine.effects import Aligned, Banked, Effect, Region, Write
from cake_plugins.primitives._banks import matrix_traffic

MATRICES = 4
"""8 x 8 matrices that one instruction stores."""


class Stmatrix(Primitive):
    """stmatrix.sync.aligned.m8n8.x4: four 8 x 8 matrices an instruction."""

    names = ("stmatrix",)
    archs = ">=sm_90"
    parameters = (
        parameter("window", "shared"),
        parameter("value", "fragment"),
        parameter("major", "text", default="K"),
    )
    uses = ("stmatrix.cycles",)

    def signature(self, site: Site) -> Type | None:
        window, value = site.region("window"), site.fragment("value")
        if not isinstance(value.layout, Accumulator):
            message = f"stmatrix stores accumulators (layout mma or wgmma), this is {value.layout.name}"
            raise site.refuse("value", message)
        if value.dtype.bytes != 2:
            message = f"stmatrix stores 16-bit elements, this fragment is {value.dtype.value}"
            raise site.refuse("value", message, help=f"stmatrix(..., cast(..., {window.dtype.value}))")
        if window.dtype is not value.dtype:
            message = f"the window holds {window.dtype.value}, the fragment {value.dtype.value}"
            raise site.refuse("value", message, help=f"cast(..., {window.dtype.value})")
        if site.text("major") not in ("K", "MN"):
            raise site.refuse("major", "the window is stored K-major (rows of the tile) or MN-major")
        rows, columns = value.shape
        shape, rank = window.shape, len(window.shape)
        if site.text("major") == "MN":
            if shape != (columns, rows) or window.window[-2:] != shape:
                message = f"the window is {list(shape)}, the fragment transposed [{columns}, {rows}]"
                raise site.refuse("window", message)
            rows, columns = columns, rows
        fits = shape[-2:] == (rows, columns) if rank == 2 else rank == 3 and shape[0] * shape[2] == columns
        if not fits or shape[-2] != rows or window.window[-rank:] != shape:
            message = f"the window is {list(shape)}, the fragment [{rows}, {columns}]"
            raise site.refuse("window", message, help=f"rows x columns, or p x {rows} x {columns}/p panels")
        illegal = matrix_rows(window)
        if illegal is not None:
            raise site.refuse("window", illegal.reason, help=illegal.help)
        return None

    def effects(self, op: Op) -> Sequence[Effect]:
        mine = rows_of(op)
        banks = Banked(mine.buffer, matrix_traffic(mine))
        return (Aligned(mine.buffer, mine.start, CHUNK), Write(mine.buffer, mine.box), banks)

    def value(self, op: Op, memory: Memory) -> np.ndarray[Any, Any] | None:
        mine = rows_of(op)
        rows, width = mine.size[-2:]
        array = op.args["value"].array
        if op.args["major"] == "MN":
            memory.write(mine, array.T)
            return None
        memory.write(mine, array.reshape(rows, -1, width).transpose(1, 0, 2))
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        kind = op.site.fragment("value")
        rows, columns = kind.layout.warp_shape(kind.shape)
        stores = rows // (2 * MATRIX) * -(-columns // (2 * MATRIX))
        # The calibration is of the instruction without conflicts: a turn for each of its matrices.
        turn = parameters("stmatrix.cycles") / MATRICES
        return Use(stores, {"shared": matrix_traffic(rows_of(op)).wavefronts * turn, "lsu": stores})

    def lower(self, op: Lowering, out: Writer) -> None:
        window: Window = op.args["window"]
        value: Registers = op.args["value"]
        kind = value.type
        rows, columns = kind.layout.warp_shape(kind.shape)
        first = f"{out.warp} % 4 * {rows} + " if kind.layout.warps == 4 else ""
        out.line("__syncwarp();")
        row, half = out.unique("cake_row"), out.unique("cake_half")
        # Lanes 8j .. 8j+7 name the rows of matrix j. A packed register is a matrix: rows 0-7, then 8-15, of a
        # group of 8 columns, then of the next group.
        # Stored transposed, they name its columns.
        trans = ".trans" if op.site.text("major") == "MN" else ""
        place = f"{out.lane} / 8 % 2 * 8" if trans else f"{out.lane} % 16"
        out.line(f"const int {row} = {first}{place}, {half} = {out.lane} / 16 * 8;")
        groups = columns // 8
        for block in range(rows // 16):
            for group in range(0, groups, 2):
                count = min(2, groups - group)
                if trans:
                    down = (
                        f"{group * 8} + {half} + {out.lane} % 8"
                        if count == 2
                        else f"{group * 8} + {out.lane} % 8"
                    )
                    at = [*["0"] * (len(window.size) - 2), down, f"{row} + {block * 16}"]
                else:
                    at = element(window, f"{row} + {block * 16}" if block else row, group * 8, half, count)
                address = out.shared_address(window, at)
                held = [f"{value.name}[{(block * groups + group) * 2 + i}]" for i in range(2 * count)]
                names = ", ".join(f"%{i + 1}" for i in range(2 * count))
                out.asm(
                    f"stmatrix.sync.aligned.m8n8.x{2 * count}{trans}.shared::cta.b16 [%0], {{{names}}};",
                    inputs=[("r", address), *(("r", name) for name in held)],
                )
        out.line("__syncwarp();")

    cases = (
        Good(
            "a warp's tile, an odd number of column groups",
            """
@kernel(arch="sm_120a")
def tile(a: Global[bf16, M, K], b: Global[bf16, N, K], c: GlobalOut[bf16, M, N]):
    grid(1)
    at = Shared[bf16, 32, 16](swizzle=32)
    bt = Shared[bf16, 24, 16](swizzle=32)
    ct = Shared[bf16, 32, 24]
    with role("tile", warps=1):
        cp_async(at, a[0:+32, 0:+16])
        cp_async(bt, b[0:+24, 0:+16])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f32, 32, 24, layout="mma")
        acc = mma(ldmatrix(at, layout="mma_a"), ldmatrix(bt, layout="mma_b"), acc)
        stmatrix(ct, cast(acc, bf16))
        fence_async()
        with one_thread():
            tma_store(c[0:+32, 0:+24], ct)
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 32, "N": 24, "K": 16},
            expect=lambda i: {"c": np.float64(i["a"]) @ np.float64(i["b"]).T},
            rtol=1e-2,
        ),
        Good(
            "a warpgroup's tile in two swizzled panels",
            """
@kernel(arch="sm_90a")
def tile(a: Global[f16, M, K], b: Global[f16, N, K], c: GlobalOut[f16, M, N]):
    grid(1)
    at = Shared[f16, 64, 64](swizzle=128)
    bt = Shared[f16, 128, 64](swizzle=128)
    ct = Shared[f16, 2, 64, 64](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("tile", warpgroups=1):
        with one_thread():
            expect_bytes(full, at, bt)
            tma_load(at, a[0:+64, 0:+64], full)
            tma_load(bt, b[0:+128, 0:+64], full)
        acc = zeros(f32, 64, 128, layout="wgmma")
        wait(full, 0)
        wgmma_fence()
        acc = wgmma(at, bt, acc)
        wgmma_commit()
        wgmma_wait(0)
        stmatrix(ct, cast(acc, f16))
        fence_async()
        named_sync(1, warps=4)
        with one_thread():
            for p in range(2):
                tma_store(c[0:+64, p * 64:+64], ct[p])
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 64, "N": 128, "K": 64},
            expect=lambda i: {"c": np.float64(i["a"]) @ np.float64(i["b"]).T},
            rtol=2e-3,
        ),
        Good(
            "transposed, by a warp and an odd number of column groups",
            """
@kernel(arch="sm_90a")
def tile(a: Global[bf16, M, K], b: Global[bf16, N, K], c: GlobalOut[bf16, N, M]):
    require(M == 32, N == 24, K == 16)
    grid(1)
    at = Shared[bf16, 32, 16](swizzle=32)
    bt = Shared[bf16, 24, 16](swizzle=32)
    ct = Shared[bf16, 24, 32](swizzle=64)
    with role("tile", warps=1):
        cp_async(at, a[0:+32, 0:+16])
        cp_async(bt, b[0:+24, 0:+16])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f32, 32, 24, layout="mma")
        acc = mma(ldmatrix(at, layout="mma_a"), ldmatrix(bt, layout="mma_b"), acc)
        stmatrix(ct, cast(acc, bf16), major="MN")
        fence_async()
        with one_thread():
            tma_store(c[0:+24, 0:+32], ct)
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 32, "N": 24, "K": 16},
            expect=lambda i: {"c": np.float64(i["b"]) @ np.float64(i["a"]).T},
            rtol=1e-2,
        ),
        Good(
            "transposed, by a warpgroup",
            """
@kernel(arch="sm_90a")
def tile(a: Global[f16, M, K], b: Global[f16, N, K], c: GlobalOut[f16, N, M]):
    require(M == 64, N == 32, K == 64)
    grid(1)
    at = Shared[f16, 64, 64](swizzle=128)
    bt = Shared[f16, 32, 64](swizzle=128)
    ct = Shared[f16, 32, 64](swizzle=128)
    full = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(full)
        fence_mbarrier_init()
    cta_sync()
    with role("tile", warpgroups=1):
        with one_thread():
            expect_bytes(full, at, bt)
            tma_load(at, a[0:+64, 0:+64], full)
            tma_load(bt, b[0:+32, 0:+64], full)
        acc = zeros(f32, 64, 32, layout="wgmma")
        wait(full, 0)
        wgmma_fence()
        acc = wgmma(at, bt, acc)
        wgmma_commit()
        wgmma_wait(0)
        stmatrix(ct, cast(acc, f16), major="MN")
        fence_async()
        named_sync(1, warps=4)
        with one_thread():
            tma_store(c[0:+32, 0:+64], ct)
            bulk_commit()
            bulk_wait_read(0)
""",
            dims={"M": 64, "N": 32, "K": 64},
            expect=lambda i: {"c": np.float64(i["b"]) @ np.float64(i["a"]).T},
            rtol=2e-3,
        ),
        Bad(
            "a transposed tile in a window that is not",
            """
@kernel(arch="sm_90a")
def wrong(y: GlobalOut[bf16, N]):
    grid(1)
    s = Shared[bf16, 16, 64]
    with role("tile", warps=1):
        stmatrix(s, cast(zeros(f32, 16, 64, layout="mma"), bf16), major="MN")  #! type/operand
""",
            dims={"N": 64},
        ),
        Bad(
            "32-bit elements",
            """
@kernel(arch="sm_90a")
def wrong(y: GlobalOut[bf16, N]):
    grid(1)
    s = Shared[bf16, 16, 64]
    with role("tile", warps=1):
        stmatrix(s, zeros(f32, 16, 64, layout="mma"))  #! type/operand
""",
            dims={"N": 64},
        ),
        Bad(
            "panels that are too few",
            """
@kernel(arch="sm_90a")
def wrong(y: GlobalOut[bf16, N]):
    grid(1)
    s = Shared[bf16, 1, 16, 64]
    with role("tile", warps=1):
        stmatrix(s, cast(zeros(f32, 16, 128, layout="mma"), bf16))  #! type/operand
""",
            dims={"N": 64},
        ),
    )


def rows_of(op: Op) -> Region:
    """The rows of the window that this warp holds, all panels."""
    region, kind = op.region("window"), op.site.fragment("value")
    rows = kind.layout.warp_shape(kind.shape)[0]
    start, size = [0] * len(region.size), list(region.size)
    axis = -1 if op.args["major"] == "MN" else -2
    start[axis], size[axis] = op.warp % kind.layout.warps * rows, rows
    return region.sub(tuple(start), tuple(size))


def element(window: Window, row: str, column: int, half: str, count: int) -> list[str]:
    """Index in the window, per axis, of the row of the matrix that a lane names.

    `half` is 0 or 8: lanes 16 to 31 name the second group of columns, which may lie in the next panel; where
    `count` is 1 they repeat the first.
    """
    width = window.shape[-1]
    lead = ["0"] * (len(window.size) - 2)
    panel, inside = divmod(column, width)
    text = f"{inside} + {half}" if count == 2 else str(inside)
    if len(window.shape) == 3:
        lead[-1] = str(panel)
        if count == 2 and inside + 8 == width:
            lead[-1], text = f"{panel} + {half} / 8", f"({half} ? 0 : {inside})"
    return [*lead, row, text]
