@kernel(arch="sm_90a")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0, M == 128)
    grid(1)
    at = Shared[bf16, 2, 128, 64](swizzle=128)
    full = MBarrier[2](arrivals=1)
    free = MBarrier[2](arrivals=4)  #! sync/early-release
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warps=4):
        with one_thread():
            for j in range(ceil_div(K, 64)):
                s, parity = ring(j, 2)
                wait(free[s], parity ^ 1)
                expect_bytes(full[s], at[s])
                tma_load(at[s], a[0:+128, j * 64:+64], full[s])
    with role("mma", warpgroups=2):
        acc = zeros(f32, 64, 128, layout="wgmma")
        for j in range(ceil_div(K, 64)):
            s, parity = ring(j, 2)
            wait(full[s], parity)
            wgmma_fence()
            acc = wgmma(at[s, warpgroup * 64:+64, :], at[s], acc)
            wgmma_commit()
            wgmma_wait(0)
            if warpgroup == 0:
                arrive(free[s])
        store(c[warpgroup * 64:+64, 0:+128], acc, vector=1)
