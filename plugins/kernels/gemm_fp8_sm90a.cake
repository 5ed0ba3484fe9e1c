@kernel(arch="sm_90a")
def gemm_fp8(a: Global[e4m3, M, K], b: Global[e4m3, N, K], c: GlobalOut[bf16, M, N], *, BM: choice(64, 128, 192)=128, BN: choice(64, 128, 192, 256)=128, BK: choice(128)=128, STAGES: choice(2, 3, 4, 5, 6)=4, SMS=132):
    """c = a @ b.T in eight bits: one warpgroup loads tiles by TMA, the others multiply by wgmma; CTAs walk over tiles."""
    require(K % 16 == 0, N % 8 == 0)
    tiles_m = ceil_div(M, BM)
    tiles_n = ceil_div(N, BN)
    tiles_k = ceil_div(K, BK)
    grid(min(tiles_m * tiles_n, SMS))
    at = Shared[e4m3, STAGES, BM, BK](swizzle=128)
    bt = Shared[e4m3, STAGES, BN, BK](swizzle=128)
    ct = Shared[bf16, BN // 64, BM, 64](swizzle=128)
    full = MBarrier[STAGES](arrivals=1)
    free = MBarrier[STAGES](arrivals=BM // 16)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warpgroups=1):
        setmaxnreg_dec(40)
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
    with role("mma", warpgroups=BM // 64):
        setmaxnreg_inc(232 if BM < 192 else 152)
        it = 0
        for tile in range(block, tiles_m * tiles_n, blocks):
            row = tile % tiles_m * BM + warpgroup * 64
            col = tile // tiles_m * BN
            acc = zeros(f32, 64, BN, layout="wgmma")
            with task("main"):
                for j in range(tiles_k):
                    s, parity = ring(it, STAGES)
                    wait(full[s], parity)
                    wgmma_fence()
                    acc = wgmma(at[s, warpgroup * 64:+64, :], bt[s], acc)
                    wgmma_commit()
                    wgmma_wait(0)
                    arrive(free[s])
                    it += 1
            with task("epilogue"):
                with one_thread("warpgroup"):
                    bulk_wait_read(0)
                named_sync(1 + warpgroup, warps=4)
                stmatrix(ct[:, warpgroup * 64:+64, :], cast(acc, bf16))
                fence_async()
                named_sync(1 + warpgroup, warps=4)
                with one_thread("warpgroup"):
                    for p in range(BN // 64):
                        tma_store(c[row:+64, col + p * 64:+64], ct[p, warpgroup * 64:+64, :])
                    bulk_commit()
        with one_thread("warpgroup"):
            bulk_wait_read(0)
