@kernel(arch="sm_90a")
def pairs(x: Global[f32, M, N], y: GlobalOut[f32, M, N]):
    require(M == 3)
    grid(M)
    cluster(2)  #! res/cluster-grid
    with role("row", warps=1):
        store(y[block, :], load(x[block, :], vector=1, fill=0.0), vector=1)
