@kernel(arch="sm_90a")
def stage(y: GlobalOut[bf16, M, N]):
    require(N % 8 == 0)
    grid(1)
    s = Shared[bf16, 64, 64](swizzle=128)
    with role("tile", warpgroups=1):
        stmatrix(s[:, :], cast(zeros(f32, 64, 64, layout="wgmma"), bf16))
        named_sync(1, warps=4)
        with one_thread():
            tma_store(y[0:+64, 0:+64], s[:, :])
            bulk_commit()
            bulk_wait_read(0)
