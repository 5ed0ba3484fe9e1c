@kernel(arch="sm_80")
def sums(x: Global[f32, N], y: GlobalOut[f32, N]):
    require(N == 64)
    grid(1)
    s = Shared[f32, 2]
    with role("row", warps=2):
        v = load(x[:], vector=1, fill=0.0)
        store(s[warp], warp_sum(v))
        if warp == 0:
            cta_sync()  #! sync/cta-sync-in-role
        store(y[:], v * reduce_sum(load(s[:])), vector=1)
