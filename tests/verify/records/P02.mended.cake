@kernel(arch="sm_90a")
def out(y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(ceil_div(M, 64))
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("all", warpgroups=1):
        acc = zeros(f32, 64, 64, layout="wgmma")
        stmatrix(s, cast(acc, bf16))
        fence_async()
        named_sync(1, warps=4)
        with one_thread():
            tma_store(y[block * 64:+64, 0:+64], s)
            bulk_commit()
            bulk_wait_read(0)
