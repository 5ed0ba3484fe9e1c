@kernel(arch="sm_90a")
def chain(y: GlobalOut[f32, 64, 64]):
    grid(1)
    p = Shared[bf16, 64, 64](swizzle=128)
    q = Shared[bf16, 64, 64](swizzle=128)
    with role("all", warpgroups=1):
        one = cast(zeros(f32, 64, 64, layout="wgmma") + 1.0, bf16)
        stmatrix(p, one)
        fence_async()
        stmatrix(q, one)  #> never fenced
        cta_sync()
        acc = zeros(f32, 64, 64, layout="wgmma")
        wgmma_fence()
        acc = wgmma(p, q, acc)  #! sync/unfenced-mma-operand
        wgmma_commit()
        wgmma_wait(0)
        store(y[0:+64, 0:+64], acc, vector=1)
