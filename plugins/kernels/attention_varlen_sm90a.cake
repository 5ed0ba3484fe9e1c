@kernel(arch="sm_90a")
def attention_varlen(q: Global[bf16, B, S, D], k: Global[bf16, B, S, D], v: Global[bf16, B, S, D], lengths: Global[i32, B], o: GlobalOut[bf16, B, S, D], *, BN: choice(64, 128)=128, STAGES: choice(2)=2, SCALE=0.12751743):
    """Attention over sequences of different lengths: each role reads how many keys there are, and goes round as often."""
    require(D == 128)
    tiles = ceil_div(S, 128)
    grid(B * tiles)
    head = block // tiles
    row = block % tiles * 128
    qs = Shared[bf16, 2, 128, 64](swizzle=128)
    ks = Shared[bf16, STAGES, 2, BN, 64](swizzle=128)
    vs = Shared[bf16, STAGES, 2, BN, 64](swizzle=128)
    ready = MBarrier(arrivals=1)
    filled = MBarrier[STAGES](arrivals=1)
    free = MBarrier[STAGES](arrivals=8)
    with one_thread():
        mbarrier_init(ready)
        mbarrier_init(filled)
        mbarrier_init(free)
        fence_mbarrier_init()
    cta_sync()
    with role("softmax", warpgroups=2):
        setmaxnreg_inc(232)
        n = scalar(lengths[head], 0, S)
        top = full(f32, 64, value=-inf, layout="wgmma_rows")
        total = full(f32, 64, value=0.0, layout="wgmma_rows")
        acc = zeros(f32, 64, 128, layout="wgmma")
        wait(ready, 0)
        for j in range(ceil_div(n, BN)):
            s, parity = ring(j, STAGES)
            with task("scores"):
                score = zeros(f32, 64, BN, layout="wgmma")
                wait(filled[s], parity)
                wgmma_fence()
                for p in unroll(2):
                    score = wgmma(qs[p, warpgroup * 64:+64, :], ks[s, p], score)
                wgmma_commit()
                wgmma_wait(0)
            with task("weights"):
                masked = select(iota(score, 1) + j * BN < n, score * SCALE, -inf)
                peak = maximum(top, row_max(masked))
                shrink = exp2(top - peak)
                weight = exp2(masked - peak)
                total = total * shrink + row_sum(weight)
                top = peak
                acc *= shrink
                half = cast(weight, bf16)
            with task("values"):
                wgmma_fence()
                acc = wgmma(half, vs[s], acc, b_major="MN")
                wgmma_commit()
                wgmma_wait(0)
                arrive(free[s])
        with task("store"):
            inside = both(iota(total) + row + warpgroup * 64 < n, total > 0.0)
            store(o[head, row + warpgroup * 64:+64, 0:+128], cast(select(inside, acc / total, 0.0), bf16), vector=2)
    with role("load", warpgroups=1):
        setmaxnreg_dec(40)
        n = scalar(lengths[head], 0, S)
        with one_thread():
            expect_bytes(ready, qs)
            for p in range(2):
                tma_load(qs[p], q[head, row:+128, p * 64:+64], ready)
            for j in range(ceil_div(n, BN)):
                s, parity = ring(j, STAGES)
                wait(free[s], parity ^ 1)
                expect_bytes(filled[s], ks[s], vs[s])
                for p in range(2):
                    tma_load(ks[s, p], k[head, j * BN:+BN, p * 64:+64], filled[s])
                    tma_load(vs[s, p], v[head, j * BN:+BN, p * 64:+64], filled[s])
