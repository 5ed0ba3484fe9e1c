@kernel(arch="sm_90a")
def split(x: Global[f32, 2, M, N], y: GlobalOut[f32, M, N]):
    require(M == 8, N == 32)
    grid(2)
    cluster(2)
    s = Shared[f32, 8, 32](swizzle=128)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a, s)
            tma_load(s, x[rank, :, :], a)
        wait(a, 0)
        with one_thread():
            tma_reduce(y[:, :], s, "add")  #! mem/uninitialized-read
            bulk_commit()
            bulk_wait_read(0)
