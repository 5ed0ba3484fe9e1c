@kernel(arch="sm_90a")
def fetch(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0, M == 8, N <= 64)
    grid(1)
    s = Shared[bf16, 8, 64](swizzle=128)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a, s)
            tma_load(s, x[0:+8, 0:+64], a)
        wait(a, 0)
        with one_thread():
            tma_store(y[0:+8, 0:+64], s)
            bulk_commit()
            bulk_wait_read(0)
