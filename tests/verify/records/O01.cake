@kernel(arch="sm_80")
def padded(x: Global[bf16, M, K], c: GlobalOut[f32, 16, 8]):
    require(M == 16, K == 16)
    grid(1)
    at = Shared[bf16, 32, 16](swizzle=32)
    with role("all", warps=1):
        cp_async(at[0:+16, :], x[0:+16, 0:+16])
        cp_async_commit()
        cp_async_wait(0)
        cta_sync()
        acc = zeros(f32, 16, 8, layout="mma")
        fa = ldmatrix(at[16:+16, 0:+16], layout="mma_a")  #! mem/uninitialized-read
        fb = ldmatrix(at[0:+8, 0:+16], layout="mma_b")
        acc = mma(fa, fb, acc)
        store(c[0:+16, 0:+8], acc, vector=1)
