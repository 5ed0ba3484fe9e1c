@kernel(arch="sm_90a")
def budget(y: GlobalOut[f32, N]):
    require(N == 1)
    grid(1)
    with role("load", warpgroups=1):
        setmaxnreg_dec(24)
    with role("math", warpgroups=2):
        setmaxnreg_inc(240)
