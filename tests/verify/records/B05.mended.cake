@kernel(arch="sm_90a")
def signal(y: GlobalOut[f32, N]):
    require(N == 64)
    grid(2)
    cluster(2)
    a = MBarrier(arrivals=1)
    with one_thread():
        mbarrier_init(a)
        fence_mbarrier_init()
    cluster_sync()
    with role("all", warps=1):
        with one_thread():
            arrive(remote(a, rank ^ 1))
        wait(a, 0, scope="cluster")
        cluster_sync()
