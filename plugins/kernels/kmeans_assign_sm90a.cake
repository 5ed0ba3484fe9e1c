@kernel(arch="sm_90a")
def kmeans_assign(x: Global[bf16, N, D], c: Global[bf16, K, D], csq: Global[f32, K], label: GlobalOut[i32, N], *, BK: choice(64, 128)=128, STAGES: choice(2, 3)=2):
    """The nearest centroid of each point: 128 points stay in shared memory, centroids stream by, no distance is written."""
    require(D % 64 == 0, D <= 256)
    grid(ceil_div(N, 128))
    xs = Shared[bf16, D // 64, 128, 64](swizzle=128)
    cs = Shared[bf16, STAGES, D // 64, BK, 64](swizzle=128)
    ready = MBarrier(arrivals=1)
    filled = MBarrier[STAGES](arrivals=1)
    free = MBarrier[STAGES](arrivals=8)
    with one_thread():
        mbarrier_init(ready)
        mbarrier_init(filled)
        mbarrier_init(free)
        fence_mbarrier_init()
    cta_sync()
    with role("score", warpgroups=2):
        best = full(f32, 64, value=inf, layout="wgmma_rows")
        nearest = full(i32, 64, value=0, layout="wgmma_rows")
        wait(ready, 0)
        for j in range(ceil_div(K, BK)):
            s, parity = ring(j, STAGES)
            with task("product"):
                acc = zeros(f32, 64, BK, layout="wgmma")
                wait(filled[s], parity)
                wgmma_fence()
                for p in unroll(D // 64):
                    acc = wgmma(xs[p, warpgroup * 64:+64, :], cs[s, p], acc)
                wgmma_commit()
                wgmma_wait(0)
                arrive(free[s])
            with task("minimum"):
                score = load_columns(csq[j * BK:+BK], layout="wgmma", fill=inf) - acc * 2.0
                least = row_min(score)
                better = least < best
                nearest = select(better, row_argmin(score) + j * BK, nearest)
                best = select(better, least, best)
        store(label[block * 128 + warpgroup * 64:+64], nearest)
    with role("load", warps=1):
        with one_thread():
            expect_bytes(ready, xs)
            for p in range(D // 64):
                tma_load(xs[p], x[block * 128:+128, p * 64:+64], ready)
            for j in range(ceil_div(K, BK)):
                s, parity = ring(j, STAGES)
                wait(free[s], parity ^ 1)
                expect_bytes(filled[s], cs[s])
                for p in range(D // 64):
                    tma_load(cs[s, p], c[j * BK:+BK, p * 64:+64], filled[s])
