@kernel(arch="sm_90a")
def share(x: Global[bf16, M, N], y: GlobalOut[bf16, 2, M, N]):
    require(M == 8, N == 64)
    grid(2)
    cluster(2)
    s = Shared[bf16, 8, 64](swizzle=128)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cluster_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a, s)
            if rank == 0:
                tma_load(s, x[0:+8, :], a, multicast=3)
        wait(a, 0)
        with one_thread():
            tma_store(y[rank, :, :], s)
            bulk_commit()
            bulk_wait_read(0)
