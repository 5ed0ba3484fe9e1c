@kernel(arch="sm_90a")
def meet(x: Global[f32, N], y: GlobalOut[f32, N]):
    require(N == 256)
    grid(1)
    a = MBarrier(arrivals=8)
    with role("all", warpgroups=2):
        with one_thread("warpgroup"):
            mbarrier_init(a)  #! sync/uninitialized-mbarrier
            fence_mbarrier_init()
        named_sync(1, warps=8)
        arrive(a)
        wait(a, 0)
        store(y[:], load(x[:], vector=1, fill=0.0), vector=1)
