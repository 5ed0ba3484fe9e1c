@kernel(arch="sm_80")
def softmax(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N], *, WARPS: choice(1, 2, 4, 8, 16, 32)=8, VEC: choice(1, 2, 4, 8)=8):
    """Row softmax: one CTA a row, the row stays in registers between its one read and its one write."""
    require(N % VEC == 0)
    grid(M)
    peaks = Shared[f32, WARPS]
    sums = Shared[f32, WARPS]
    with role("row", warps=WARPS):
        with task("load"):
            v = cast(load(x[block, :], vector=VEC, fill=-inf), f32)
        with task("peak"):
            store(peaks[warp], warp_max(v))
            cta_sync()
            peak = reduce_max(load(peaks[:]))
        with task("sum"):
            e = exp2((v - peak) * 1.4426950408889634)
            store(sums[warp], warp_sum(e))
            cta_sync()
            total = reduce_sum(load(sums[:]))
        with task("store"):
            store(y[block, :], cast(e / total, bf16), vector=VEC)
