@kernel(arch="sm_120a")
def gemm(a: Global[bf16, M, K], b: Global[bf16, N, K], c: GlobalOut[bf16, M, N], *, BM: choice(64, 128)=128, BN: choice(64, 128)=128, BK: choice(64)=64, STAGES: choice(2, 3)=3, SMS=188):
    """c = a @ b.T: one warp loads tiles by TMA, eight multiply by mma.sync; CTAs walk over tiles."""
    require(K % 8 == 0, N % 8 == 0)
    tiles_m = ceil_div(M, BM)
    tiles_n = ceil_div(N, BN)
    tiles_k = ceil_div(K, BK)
    grid(min(tiles_m * tiles_n, SMS))
    at = Shared[bf16, STAGES, BM, BK](swizzle=128)
    bt = Shared[bf16, STAGES, BN, BK](swizzle=128)
    full = MBarrier[STAGES](arrivals=1)
    free = MBarrier[STAGES](arrivals=8)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        fence_mbarrier_init()
    cta_sync()
    with role("mma", warps=8):
        it = 0
        for tile in range(block, tiles_m * tiles_n, blocks):
            row = tile % tiles_m * BM + warp % 4 * (BM // 4)
            col = tile // tiles_m * BN + warp // 4 * (BN // 2)
            acc = zeros(f32, BM // 4, BN // 2, layout="mma")
            with task("main"):
                for j in range(tiles_k):
                    s, parity = ring(it, STAGES)
                    wait(full[s], parity)
                    for kk in unroll(BK // 16):
                        fa = ldmatrix(at[s, warp % 4 * (BM // 4):+(BM // 4), kk * 16:+16], layout="mma_a")
                        fb = ldmatrix(bt[s, warp // 4 * (BN // 2):+(BN // 2), kk * 16:+16], layout="mma_b")
                        acc = mma(fa, fb, acc)
                    fence_async()
                    arrive(free[s])
                    it += 1
            with task("epilogue"):
                store(c[row:+(BM // 4), col:+(BN // 2)], cast(acc, bf16), vector=2)
    with role("load", warps=1):
        with one_thread():
            it = 0
            for tile in range(block, tiles_m * tiles_n, blocks):
                row = tile % tiles_m * BM
                col = tile // tiles_m * BN
                for j in range(tiles_k):
                    s, parity = ring(it, STAGES)
                    wait(free[s], parity ^ 1)
                    expect_bytes(full[s], at[s], bt[s])
                    tma_load(at[s], a[row:+BM, j * BK:+BK], full[s])
                    tma_load(bt[s], b[col:+BN, j * BK:+BK], full[s])
                    it += 1
