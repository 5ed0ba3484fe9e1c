@kernel(arch="sm_80")
def sums(x: Global[f32, 2, N], y: GlobalOut[f32, 2, N]):
    require(N == 64)
    grid(1)
    s = Shared[f32, 2, 2]
    with role("left", warps=2):
        v = load(x[0, :], vector=1, fill=0.0)
        store(s[0, warp], warp_sum(v))
        named_sync(1, warps=2)
        store(y[0, :], v * reduce_sum(load(s[0, :])), vector=1)
    with role("right", warps=2):
        v = load(x[1, :], vector=1, fill=0.0)
        store(s[1, warp], warp_sum(v))
        named_sync(1, warps=2)  #! sync/named-barrier-count
        store(y[1, :], v * reduce_sum(load(s[1, :])), vector=1)
