@kernel(arch="sm_90a")
def gemm_cluster(a: Global[bf16, M, K], b: Global[bf16, N, K], c: GlobalOut[bf16, M, N], *, BN: choice(64, 128, 256)=128, BK: choice(64)=64, STAGES: choice(3, 4)=4):
    """c = a @ b.T: the two CTAs of a cluster take tiles one above the other and load each half of the b tile for both."""
    require(K % 8 == 0, N % 8 == 0)
    tiles_m = ceil_div(M, 256) * 2
    tiles_n = ceil_div(N, BN)
    tiles_k = ceil_div(K, BK)
    grid(tiles_m * tiles_n)
    cluster(2)
    row = block % tiles_m * 128
    col = block // tiles_m * BN
    at = Shared[bf16, STAGES, 128, BK](swizzle=128)
    bt = Shared[bf16, STAGES, BN, BK](swizzle=128)
    ct = Shared[bf16, BN // 64, 128, 64](swizzle=128)
    full = MBarrier[STAGES](arrivals=1)
    free = MBarrier[STAGES](arrivals=16)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        fence_mbarrier_init()
    cluster_sync()
    with role("load", warpgroups=1):
        setmaxnreg_dec(40)
        with one_thread():
            for j in range(tiles_k):
                s, parity = ring(j, STAGES)
                wait(free[s], parity ^ 1)
                expect_bytes(full[s], at[s], bt[s])
                tma_load(at[s], a[row:+128, j * BK:+BK], full[s])
                tma_load(bt[s, rank * (BN // 2):+(BN // 2), :], b[col + rank * (BN // 2):+(BN // 2), j * BK:+BK], full[s], multicast=3)
    with role("mma", warpgroups=2):
        setmaxnreg_inc(232)
        acc = zeros(f32, 64, BN, layout="wgmma")
        with task("main"):
            for j in range(tiles_k):
                s, parity = ring(j, STAGES)
                wait(full[s], parity)
                wgmma_fence()
                acc = wgmma(at[s, warpgroup * 64:+64, :], bt[s], acc)
                wgmma_commit()
                wgmma_wait(0)
                arrive(free[s])
                arrive(remote(free[s], 1 - rank))
        with task("epilogue"):
            stmatrix(ct[:, warpgroup * 64:+64, :], cast(acc, bf16))
            fence_async()
            named_sync(1 + warpgroup, warps=4)
            with one_thread("warpgroup"):
                for p in range(BN // 64):
                    tma_store(c[row + warpgroup * 64:+64, col + p * 64:+64], ct[p, warpgroup * 64:+64, :])
                bulk_commit()
                bulk_wait_read(0)
    cluster_sync()
