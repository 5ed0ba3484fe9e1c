@kernel(arch="sm_90a")
def gemm(a: Global[bf16, M, K], b: Global[bf16, N, K], c: GlobalOut[bf16, M, N], *, BM: choice(64, 128)=128, BN: choice(64, 128, 192, 256)=128, BK: choice(64)=64, STAGES: choice(2, 3, 4, 5, 6)=4, SMS=132):
    """c = a @ b.T: tiles of a by TMA where they are whole, the rows of the last ones by cp.async, on the same mbarriers."""
    require(K % 8 == 0, N % 8 == 0)
    tiles_m = ceil_div(M, BM)
    tiles_n = ceil_div(N, BN)
    tiles_k = ceil_div(K, BK)
    grid(min(tiles_m * tiles_n, SMS))
    at = Shared[bf16, STAGES, BM, BK](swizzle=128)
    bt = Shared[bf16, STAGES, BN, BK](swizzle=128)
    ct = Shared[bf16, BN // 64, BM, 64](swizzle=128)
    full = MBarrier[STAGES](arrivals=5)
    free = MBarrier[STAGES](arrivals=BM // 16)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warpgroups=1):
        setmaxnreg_dec(56)
        it = 0
        for tile in range(block, tiles_m * tiles_n, blocks):
            row = tile % tiles_m * BM
            col = tile // tiles_m * BN
            for j in range(tiles_k):
                s, parity = ring(it, STAGES)
                wait(free[s], parity ^ 1)
                if row + BM <= M:
                    with one_thread():
                        expect_bytes(full[s], at[s], bt[s])
                        tma_load(at[s], a[row:+BM, j * BK:+BK], full[s])
                        tma_load(bt[s], b[col:+BN, j * BK:+BK], full[s])
                else:
                    with one_thread():
                        expect_bytes(full[s], bt[s])
                        tma_load(bt[s], b[col:+BN, j * BK:+BK], full[s])
                    cp_async(at[s], a[row:+BM, j * BK:+BK])
                    cp_async_arrive(full[s])
                arrive(full[s])
                it += 1
    with role("mma", warpgroups=BM // 64):
        setmaxnreg_inc(224)
        it = 0
        for tile in range(block, tiles_m * tiles_n, blocks):
            row = tile % tiles_m * BM + warpgroup * 64
            col = tile // tiles_m * BN
            acc = zeros(f32, 64, BN, layout="wgmma")
            with task("main"):
                for j in range(tiles_k):
                    s, parity = ring(it, STAGES)
                    wait(full[s], parity)
                    if tile % tiles_m * BM + BM > M:
                        fence_async()
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
