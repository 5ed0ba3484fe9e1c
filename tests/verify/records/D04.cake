@kernel(arch="sm_90a")
def tiles(y: GlobalOut[bf16, M, N], *, SMS=4):
    require(N % 8 == 0, N <= 64)
    grid(min(ceil_div(M, 64), SMS))
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("all", warpgroups=1):
        acc = zeros(f32, 64, 64, layout="wgmma")
        for tile in range(block, ceil_div(M, 64), blocks):
            acc = acc + 1.0
            with one_thread():
                bulk_wait_read(0)
            stmatrix(s, cast(acc, bf16))  #! sync/staging-reuse
            fence_async()
            named_sync(1, warps=4)
            with one_thread():
                tma_store(y[tile * 64:+64, 0:+64], s)
                bulk_commit()
        with one_thread():
            bulk_wait_read(0)
