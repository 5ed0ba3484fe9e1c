@kernel(arch="sm_89")
def gemm_fp8(a: Global[e4m3, M, K], b: Global[e4m3, N, K], c: GlobalOut[bf16, M, N], *, BM: choice(64, 128, 256)=128, BN: choice(64, 128, 256)=128, BK: choice(64, 128)=64, STAGES: choice(2, 3, 4, 5)=4, WM: choice(32, 64)=32, WN: choice(32, 64)=64):
    """c = a @ b.T in eight bits: a ring of cp.async stages in shared memory feeds mma.sync; tails are masked."""
    require(K % 16 == 0, N % 2 == 0)
    tiles_m = ceil_div(M, BM)
    tiles_n = ceil_div(N, BN)
    tiles_k = ceil_div(K, BK)
    grid(tiles_m * tiles_n)
    at = Shared[e4m3, STAGES, BM, BK](swizzle=BK)
    bt = Shared[e4m3, STAGES, BN, BK](swizzle=BK)
    with role("mma", warps=BM // WM * (BN // WN)):
        row = block % tiles_m * BM
        col = block // tiles_m * BN
        wm = warp // (BN // WN) * WM
        wn = warp % (BN // WN) * WN
        acc = zeros(f32, WM, WN, layout="mma")
        with task("fill"):
            for j in range(STAGES - 1):
                cp_async(at[j], a[row:+BM, j * BK:+BK])
                cp_async(bt[j], b[col:+BN, j * BK:+BK])
                cp_async_commit()
        with task("main"):
            for j in range(tiles_k):
                cp_async_wait(STAGES - 2)
                cta_sync()
                s = j % STAGES
                for k in unroll(BK // 32):
                    fa = ldmatrix(at[s, wm:+WM, k * 32:+32], layout="mma_a")
                    fb = ldmatrix(bt[s, wn:+WN, k * 32:+32], layout="mma_b")
                    acc = mma(fa, fb, acc)
                ahead = j + STAGES - 1
                cp_async(at[ahead % STAGES], a[row:+BM, ahead * BK:+BK])
                cp_async(bt[ahead % STAGES], b[col:+BN, ahead * BK:+BK])
                cp_async_commit()
        with task("epilogue"):
            cp_async_wait(0)
            store(c[row + wm:+WM, col + wn:+WN], cast(acc, bf16), vector=2)
