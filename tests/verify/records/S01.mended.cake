@kernel(arch="sm_90a")
def wide(y: GlobalOut[f32, N]):
    require(N == 1)
    grid(1)
    s = Shared[bf16, 112, 1024]
    t = Shared[f32, 40]
    with role("all", warps=1):
        i = 0
