@kernel(arch="sm_100a")
def gemm(a: Global[bf16, M, K], b: Global[bf16, N, K], c: GlobalOut[bf16, M, N], *, BN: choice(64, 128, 256)=128, BK: choice(64)=64, STAGES: choice(3, 4, 5, 6)=4, SMS=148):
    """c = a @ b.T: one thread issues tcgen05.mma into two accumulators in tensor memory, a warpgroup empties one while the other fills."""
    require(K % 8 == 0, N % 8 == 0)
    tiles_m = ceil_div(M, 128)
    tiles_n = ceil_div(N, BN)
    tiles_k = ceil_div(K, BK)
    grid(min(tiles_m * tiles_n, SMS))
    at = Shared[bf16, STAGES, 128, BK](swizzle=128)
    bt = Shared[bf16, STAGES, BN, BK](swizzle=128)
    ct = Shared[bf16, BN // 64, 128, 64](swizzle=128)
    acc = TensorMemory[f32, 2, 128, BN](column=0)
    full = MBarrier[STAGES](arrivals=1)
    free = MBarrier[STAGES](arrivals=1)
    done = MBarrier[2](arrivals=1)
    empty = MBarrier[2](arrivals=4)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        mbarrier_init(done)
        mbarrier_init(empty)
        fence_mbarrier_init()
    if warp == 0:
        tcgen05_alloc(2 * BN)
        tcgen05_relinquish()
    cta_sync()
    with role("epilogue", warpgroups=1):
        turn = 0
        for tile in range(block, tiles_m * tiles_n, blocks):
            row = tile % tiles_m * 128
            col = tile // tiles_m * BN
            s, parity = ring(turn, 2)
            with task("drain"):
                with one_thread():
                    bulk_wait_read(0)
                named_sync(1, warps=4)
                wait(done[s], parity)
                tcgen05_fence_after()
                for p in unroll(BN // 64):
                    v = tcgen05_ld(acc[s, :, p * 64:+64])
                    tcgen05_wait_ld()
                    store(ct[p], cast(v, bf16), vector=8)
                tcgen05_fence_before()
                arrive(empty[s])
            with task("store"):
                fence_async()
                named_sync(1, warps=4)
                with one_thread():
                    for p in range(BN // 64):
                        tma_store(c[row:+128, col + p * 64:+64], ct[p])
                    bulk_commit()
            turn += 1
        with one_thread():
            bulk_wait_read(0)
    with role("load", warps=1):
        with one_thread():
            it = 0
            for tile in range(block, tiles_m * tiles_n, blocks):
                row = tile % tiles_m * 128
                col = tile // tiles_m * BN
                for j in range(tiles_k):
                    s, parity = ring(it, STAGES)
                    wait(free[s], parity ^ 1)
                    expect_bytes(full[s], at[s], bt[s])
                    tma_load(at[s], a[row:+128, j * BK:+BK], full[s])
                    tma_load(bt[s], b[col:+BN, j * BK:+BK], full[s])
                    it += 1
    with role("mma", warps=1):
        with one_thread():
            it = 0
            turn = 0
            for tile in range(block, tiles_m * tiles_n, blocks):
                s, parity = ring(turn, 2)
                wait(empty[s], parity ^ 1)
                tcgen05_fence_after()
                for j in range(tiles_k):
                    r, phase = ring(it, STAGES)
                    wait(full[r], phase)
                    tcgen05_mma(acc[s], at[r], bt[r], accumulate=j > 0)
                    tcgen05_commit(free[r])
                    it += 1
                tcgen05_commit(done[s])
                turn += 1
    cta_sync()
    if warp == 0:
        tcgen05_dealloc(2 * BN)
