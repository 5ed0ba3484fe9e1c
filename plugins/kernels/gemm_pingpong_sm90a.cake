@kernel(arch="sm_90a")
def gemm_pingpong(a: Global[bf16, M, K], b: Global[bf16, N, K], c: GlobalOut[bf16, M, N], *, BN: choice(64, 128, 192, 256)=256, BK: choice(64)=64, STAGES: choice(3, 4, 5, 6)=4, SMS=132):
    """c = a @ b.T: two warpgroups take tiles in turn, so that the epilogue of one hides under the wgmma of the other."""
    require(K % 8 == 0, N % 8 == 0)
    tiles_m = ceil_div(M, 64)
    tiles_n = ceil_div(N, BN)
    tiles_k = ceil_div(K, BK)
    grid(min(tiles_m * tiles_n, SMS))
    at = Shared[bf16, STAGES, 64, BK](swizzle=128)
    bt = Shared[bf16, STAGES, BN, BK](swizzle=128)
    ct = Shared[bf16, 2, BN // 64, 64, 64](swizzle=128)
    full = MBarrier[STAGES](arrivals=1)
    free = MBarrier[STAGES](arrivals=4)
    turn = MBarrier[2](arrivals=4)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        mbarrier_init(turn)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warpgroups=1):
        setmaxnreg_dec(40)
        with one_thread():
            it = 0
            for tile in range(block, tiles_m * tiles_n, blocks):
                row = tile % tiles_m * 64
                col = tile // tiles_m * BN
                for j in range(tiles_k):
                    s, parity = ring(it, STAGES)
                    wait(free[s], parity ^ 1)
                    expect_bytes(full[s], at[s], bt[s])
                    tma_load(at[s], a[row:+64, j * BK:+BK], full[s])
                    tma_load(bt[s], b[col:+BN, j * BK:+BK], full[s])
                    it += 1
    with role("mma", warpgroups=2):
        setmaxnreg_inc(232)
        it = warpgroup * tiles_k
        round = 0
        for tile in range(block + warpgroup * blocks, tiles_m * tiles_n, 2 * blocks):
            row = tile % tiles_m * 64
            col = tile // tiles_m * BN
            acc = zeros(f32, 64, BN, layout="wgmma")
            with task("turn"):
                wait(turn[warpgroup], round & 1 ^ 1 - warpgroup)
                round += 1
            with task("main"):
                for j in range(tiles_k):
                    s, parity = ring(it, STAGES)
                    wait(full[s], parity)
                    wgmma_fence()
                    acc = wgmma(at[s], bt[s], acc)
                    wgmma_commit()
                    wgmma_wait(0)
                    arrive(free[s])
                    it += 1
                it += tiles_k
                arrive(turn[1 - warpgroup])
            with task("epilogue"):
                with one_thread("warpgroup"):
                    bulk_wait_read(0)
                named_sync(1 + warpgroup, warps=4)
                stmatrix(ct[warpgroup], cast(acc, bf16))
                fence_async()
                named_sync(1 + warpgroup, warps=4)
                with one_thread("warpgroup"):
                    for p in range(BN // 64):
                        tma_store(c[row:+64, col + p * 64:+64], ct[warpgroup, p])
                    bulk_commit()
        with one_thread("warpgroup"):
            bulk_wait_read(0)
