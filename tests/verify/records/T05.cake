@kernel(arch="sm_90a")
def tail(x: Global[bf16, N], y: GlobalOut[bf16, N]):
    require(N == 136)
    grid(2)
    s = Shared[bf16, 72]
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a, s)
            bulk_copy(s, x[block * 64:+72], a)
        wait(a, 0)
        with one_thread():
            bulk_copy(y[block * 68:+64], s[0:+64])  #! mem/misaligned-window
            bulk_commit()
            bulk_wait_read(0)
