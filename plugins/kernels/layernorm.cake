@kernel(arch="sm_80")
def layernorm(x: Global[bf16, M, N], w: Global[bf16, N], b: Global[bf16, N], y: GlobalOut[bf16, M, N], *, WARPS: choice(1, 2, 4, 8, 16, 32)=8, VEC: choice(1, 2, 4, 8)=8, EPS=1e-05):
    """Layer normalization: one CTA a row, mean first, then the deviations from it; what lies beyond the row counts for nothing."""
    require(N % VEC == 0)
    grid(M)
    sums = Shared[f32, WARPS]
    squares = Shared[f32, WARPS]
    with role("row", warps=WARPS):
        with task("load"):
            v = cast(load(x[block, :], vector=VEC, fill=0.0), f32)
            g = cast(load(w[:], vector=VEC, fill=0.0), f32)
            h = cast(load(b[:], vector=VEC, fill=0.0), f32)
        with task("mean"):
            store(sums[warp], warp_sum(v))
            cta_sync()
            d = select(iota(v) < N, v - reduce_sum(load(sums[:])) / N, 0.0)
        with task("deviation"):
            store(squares[warp], warp_sum(d * d))
            cta_sync()
            scale = rsqrt(reduce_sum(load(squares[:])) / N + EPS)
        with task("store"):
            store(y[block, :], cast(d * scale * g + h, bf16), vector=VEC)
