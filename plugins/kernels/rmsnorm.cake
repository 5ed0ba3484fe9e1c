@kernel(arch="sm_80")
def rmsnorm(x: Global[bf16, M, N], w: Global[bf16, N], y: GlobalOut[bf16, M, N], *, WARPS: choice(1, 2, 4, 8, 16, 32)=8, VEC: choice(1, 2, 4, 8)=8, EPS=1e-06):
    """RMSNorm with weight: one CTA a row, the row stays in registers between its one read and its one write."""
    require(N % VEC == 0)
    grid(M)
    sums = Shared[f32, WARPS]
    with role("row", warps=WARPS):
        with task("load"):
            v = cast(load(x[block, :], vector=VEC, fill=0.0), f32)
            g = cast(load(w[:], vector=VEC, fill=0.0), f32)
        with task("sum"):
            store(sums[warp], warp_sum(v * v))
            cta_sync()
            mean = reduce_sum(load(sums[:])) / N
        with task("store"):
            store(y[block, :], cast(v * rsqrt(mean + EPS) * g, bf16), vector=VEC)
