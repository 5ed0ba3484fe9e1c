@kernel(arch="sm_90a")
def gram(a: Global[bf16, M, K], c: GlobalOut[f32, M, M]):
    require(K % 8 == 0, M == 64)
    grid(1)
    at = Shared[bf16, 3, 64, 64](swizzle=128)
    full = MBarrier[3](arrivals=1)
    done = MBarrier(arrivals=4)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(done)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warps=4):
        with one_thread():
            for j in range(ceil_div(K, 64)):
                s = j % 3
                if j > 0:
                    wait(done, j - 1 & 1)
                expect_bytes(full[s], at[s])
                tma_load(at[s], a[0:+64, j * 64:+64], full[s])
    with role("mma", warpgroups=1):
        acc = zeros(f32, 64, 64, layout="wgmma")
        for j in range(ceil_div(K, 64)):
            s, parity = ring(j, 3)
            wait(full[s], parity)
            wgmma_fence()
            acc = wgmma(at[s], at[s], acc)
            wgmma_commit()
            wgmma_wait(0)
            arrive(done)
        store(c[0:+64, 0:+64], acc, vector=1)
