@kernel(arch="sm_90a")
def fetch(x: Global[bf16, M, N], y: GlobalOut[f32, 1]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 2, 256, 64](swizzle=128)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cta_sync()
    with role("all", warps=1):
        with one_thread():
            expect_bytes(a, s)
            tma_load(s[0], x[0:+256, 0:+64], a)
            tma_load(s[1], x[256:+256, 0:+64], a)
        wait(a, 0)
