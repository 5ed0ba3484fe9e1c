@kernel(arch="sm_80")
def rows(x: Global[bf16, M, N], y: GlobalOut[bf16, M, N]):
    grid(M)
    with role("row", warps=4):
        store(y[block, :], load(x[block, :], vector=8, fill=0.0), vector=8)  #! type/operand
