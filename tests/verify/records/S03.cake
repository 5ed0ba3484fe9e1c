@kernel(arch="sm_120a")
def wide(y: GlobalOut[f32, N], *, STAGES=4):
    require(N == 1)
    grid(1)
    s = Shared[bf16, STAGES, 256, 64](swizzle=128)  #! res/shared-capacity
    with role("all", warps=1):
        i = 0
