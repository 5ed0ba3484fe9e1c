@kernel(arch="sm_90a")
def state(x: Global[bf16, M, K], y: GlobalOut[bf16, 64, 64]):
    require(M == 64, K % 8 == 0)
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("all", warpgroups=1):
        acc = zeros(f32, 64, 64, layout="wgmma")
        stmatrix(s, cast(acc, bf16))  #> never fenced
        for j in range(K // 64):
            named_sync(1, warps=4)
            acc = acc + 1.0
            stmatrix(s, cast(acc, bf16))
            fence_async()
        named_sync(1, warps=4)
        with one_thread():
            tma_store(y[0:+64, 0:+64], s)  #! sync/unfenced-tma-store
            bulk_commit()
            bulk_wait_read(0)
