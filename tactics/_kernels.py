"""Kernels that the cases of tactics begin with: the two shapes of a pipelined matrix product."""

RING = """
@kernel(arch="sm_80")
def gemm(a: Global[bf16, M, K], b: Global[bf16, N, K], c: GlobalOut[bf16, M, N], *,
         BM: choice(32, 64)=32, BN: choice(32, 64)=32, BK: choice(32, 64)=32, STAGES: choice(2, 3, 4)=2,
         WM: choice(16, 32)=16, WN: choice(16, 32)=32):
    require(K % 8 == 0, N % 2 == 0)
    tiles_m = ceil_div(M, BM)
    tiles_n = ceil_div(N, BN)
    tiles_k = ceil_div(K, BK)
    grid(tiles_m * tiles_n)
    at = Shared[bf16, STAGES, BM, BK](swizzle=64)
    bt = Shared[bf16, STAGES, BN, BK](swizzle=64)
    with role("mma", warps=BM // WM * (BN // WN)):
        row = block % tiles_m * BM
        col = block // tiles_m * BN
        wm = warp // (BN // WN) * WM
        wn = warp % (BN // WN) * WN
        acc = zeros(f32, WM, WN, layout="mma")
        for j in range(STAGES - 1):
            cp_async(at[j], a[row:+BM, j * BK:+BK])
            cp_async(bt[j], b[col:+BN, j * BK:+BK])
            cp_async_commit()
        for j in range(tiles_k):
            cp_async_wait(STAGES - 2)
            cta_sync()
            s = j % STAGES
            for k in unroll(BK // 16):
                fa = ldmatrix(at[s, wm:+WM, k * 16:+16], layout="mma_a")
                fb = ldmatrix(bt[s, wn:+WN, k * 16:+16], layout="mma_b")
                acc = mma(fa, fb, acc)
            ahead = j + STAGES - 1
            cp_async(at[ahead % STAGES], a[row:+BM, ahead * BK:+BK])
            cp_async(bt[ahead % STAGES], b[col:+BN, ahead * BK:+BK])
            cp_async_commit()
        cp_async_wait(0)
        store(c[row + wm:+WM, col + wn:+WN], cast(acc, bf16), vector=2)
"""
"""sm_80: one role, a ring of cp.async stages, one tile a CTA."""

ROLES = """
@kernel(arch="sm_90a")
def gemm(a: Global[bf16, M, K], b: Global[bf16, N, K], c: GlobalOut[bf16, M, N], *,
         BM: choice(64, 128)=64, BN: choice(64, 128)=64, STAGES: choice(2, 3, 4)=2, SMS=4):
    require(K % 8 == 0, N % 8 == 0)
    tiles_m = ceil_div(M, BM)
    tiles_n = ceil_div(N, BN)
    tiles_k = ceil_div(K, 64)
    grid(min(tiles_m * tiles_n, SMS))
    at = Shared[bf16, STAGES, BM, 64](swizzle=128)
    bt = Shared[bf16, STAGES, BN, 64](swizzle=128)
    ct = Shared[bf16, BN // 64, BM, 64](swizzle=128)
    full = MBarrier[STAGES](arrivals=1)
    free = MBarrier[STAGES](arrivals=BM // 16)
    with one_thread():
        mbarrier_init(full)
        mbarrier_init(free)
        fence_mbarrier_init()
    cta_sync()
    with role("load", warpgroups=1):
        with one_thread():
            it = 0
            for tile in range(block, tiles_m * tiles_n, blocks):
                row = tile % tiles_m * BM
                col = tile // tiles_m * BN
                for j in range(tiles_k):
                    s, parity = ring(it, STAGES)
                    wait(free[s], parity ^ 1)
                    expect_bytes(full[s], at[s], bt[s])
                    tma_load(at[s], a[row:+BM, j * 64:+64], full[s])
                    tma_load(bt[s], b[col:+BN, j * 64:+64], full[s])
                    it += 1
    with role("mma", warpgroups=BM // 64):
        it = 0
        for tile in range(block, tiles_m * tiles_n, blocks):
            row = tile % tiles_m * BM + warpgroup * 64
            col = tile // tiles_m * BN
            acc = zeros(f32, 64, BN, layout="wgmma")
            for j in range(tiles_k):
                s, parity = ring(it, STAGES)
                wait(full[s], parity)
                wgmma_fence()
                acc = wgmma(at[s, warpgroup * 64:+64, :], bt[s], acc)
                wgmma_commit()
                wgmma_wait(0)
                arrive(free[s])
                it += 1
            with one_thread("warpgroup"):
                bulk_wait_read(0)
            named_sync(1 + warpgroup, warps=4)
            stmatrix(ct[:, warpgroup * 64:+64, :], cast(acc, bf16))
            fence_async()
            named_sync(1 + warpgroup, warps=4)
            with one_thread("warpgroup"):
                for p in range(BN // 64):
                    tma_store(c[row:+64, col + p * 64:+64], ct[p, warpgroup * 64:+64, :])
                bulk_commit()
        with one_thread("warpgroup"):
            bulk_wait_read(0)
"""
"""sm_90a: a loader and multiplying warpgroups joined by mbarriers, CTAs walking over tiles."""

ROWS = """
@kernel(arch="sm_80")
def scale(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N], *,
          WARPS: choice(1, 2, 4)=1, VEC: choice(1, 2, 4, 8)=1):
    require(N % VEC == 0)
    grid(M)
    sums = Shared[f32, WARPS]
    with role("row", warps=WARPS):
        v = cast(load(x[block, :], vector=VEC, fill=0.0), f32)
        store(sums[warp], warp_sum(v))
        cta_sync()
        total = reduce_sum(load(sums[:]))
        store(y[block, :], cast(v - total, bf16), vector=VEC)
"""
"""sm_80: a row a CTA."""


def edited(text: str, *edits: tuple[str, str]) -> str:
    """`text` with each (old, new) replaced where it stands; every `old` must stand there."""
    for old, new in edits:
        if old not in text:
            raise ValueError(f"not in the kernel: {old}")
        text = text.replace(old, new)
    return text
