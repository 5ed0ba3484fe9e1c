// kmeans_assign N=1000 D=128 K=200 for sm_90a

struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };

__device__ __forceinline__ bool cake_elect() {
    unsigned one;
    asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}" : "=r"(one));
    return one != 0;
}

__device__ __forceinline__ void cake_wait(unsigned barrier, unsigned parity) {
    asm volatile("{\n\t.reg .pred done;\n"
        "again:\n\t"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n\t"
        "@!done bra again;\n\t}"
        :: "r"(barrier), "r"(parity) : "memory");
}

__device__ __forceinline__ unsigned long long cake_descriptor_128(unsigned address) {
    return (address & 0x3ffffu) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ __forceinline__ void
cake_wgmma_m64n128k16_bf16(float (&d)[64], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b) : "memory");
}

__device__ __forceinline__ void cake_keep_64(float (&d)[64]) {
    asm volatile("" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]) :: "memory");
}

extern "C" __global__ void __launch_bounds__(288, 1)
kmeans_assign_kernel(
    const float* __restrict__ csq,
    int* __restrict__ label,
    const __grid_constant__ CUtensorMap cake_map_x,
    const __grid_constant__ CUtensorMap cake_map_c) {
    constexpr int BK = 128;
    constexpr int STAGES = 2;
    constexpr int D = 128;
    constexpr int K = 200;
    extern __shared__ __align__(1024) unsigned char cake_shared[];
    [[maybe_unused]] const unsigned cake_base = (static_cast<unsigned>(__cvta_generic_to_shared(cake_shared)) + 1023u) & ~1023u;
    [[maybe_unused]] const int cake_block = static_cast<int>(blockIdx.x);
    [[maybe_unused]] const int cake_lane = static_cast<int>(threadIdx.x) % 32;
    [[maybe_unused]] const int cake_warp =
        __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    const unsigned xs = cake_base;
    const unsigned cs = cake_base + 32768;
    const unsigned ready = cake_base + 98304;
    const unsigned filled = cake_base + 98312;
    const unsigned free = cake_base + 98328;
    // 11: with one_thread():
    __syncwarp();
    if (cake_warp == 0 && cake_elect()) {
        // 12: mbarrier_init(ready)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(ready) : "memory");
        // 13: mbarrier_init(filled)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(filled) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(filled + 8) : "memory");
        // 14: mbarrier_init(free)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" :: "r"(free) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" :: "r"(free + 8) : "memory");
        // 15: fence_mbarrier_init()
        asm volatile("fence.mbarrier_init.release.cluster;" :: : "memory");
    }
    __syncwarp();
    // 16: cta_sync()
    __syncthreads();
    // 17: with role("score", warpgroups=2):
    if (cake_warp < 8) {
        // role score: warps 0 to 7
        [[maybe_unused]] const int cake_rank = cake_warp;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        // 18: best = full(f32, 64, value=inf, layout="wgmma_rows")
        float best[2];
        #pragma unroll
        for (int i_ = 0; i_ < 2; ++i_) {
            best[i_] = __int_as_float(0x7f800000);
        }
        // 19: nearest = full(i32, 64, value=0, layout="wgmma_rows")
        int nearest[2];
        #pragma unroll
        for (int i_ = 0; i_ < 2; ++i_) {
            nearest[i_] = 0;
        }
        // 20: wait(ready, 0)
        cake_wait(ready, 0);
        // 21: for j in range(ceil_div(K, BK)):
        for (int j = 0; j < (K + BK - 1) / BK; ++j) {
            // 22: s, parity = ring(j, STAGES)
            int s = j % STAGES;
            int parity = j / STAGES & 1;
            // 23: with task("product"):
            // task product
            // 24: acc = zeros(f32, 64, BK, layout="wgmma")
            float acc[64];
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                acc[i_] = 0.0f;
            }
            // 25: wait(filled[s], parity)
            cake_wait(filled + s * 8, parity);
            // 26: wgmma_fence()
            asm volatile("wgmma.fence.sync.aligned;" :: : "memory");
            // 27: for p in unroll(D // 64):
            #pragma unroll
            for (int p = 0; p < D / 64; ++p) {
                // 28: acc = wgmma(xs[p, warpgroup * 64:+64, :], cs[s, p], acc)
                const unsigned long long cake_descriptor_1 = cake_descriptor_128(xs + p * 16384 + cake_rank / 4 * 8192);
                const unsigned long long cake_descriptor_2 = cake_descriptor_128(cs + s * 32768 + p * 16384);
                cake_wgmma_m64n128k16_bf16(acc, cake_descriptor_1 + 0, cake_descriptor_2 + 0);
                cake_wgmma_m64n128k16_bf16(acc, cake_descriptor_1 + 2, cake_descriptor_2 + 2);
                cake_wgmma_m64n128k16_bf16(acc, cake_descriptor_1 + 4, cake_descriptor_2 + 4);
                cake_wgmma_m64n128k16_bf16(acc, cake_descriptor_1 + 6, cake_descriptor_2 + 6);
            }
            // 29: wgmma_commit()
            asm volatile("wgmma.commit_group.sync.aligned;" :: : "memory");
            // 30: wgmma_wait(0)
            asm volatile("wgmma.wait_group.sync.aligned 0;" :: : "memory");
            cake_keep_64(acc);
            // 31: arrive(free[s])
            __syncwarp();
            if (cake_lane == 0) {
                asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" :: "r"(free + s * 8) : "memory");
            }
            // 32: with task("minimum"):
            // task minimum
            // 33: score = load_columns(csq[j * BK:+BK], layout="wgmma", fill=inf) - acc * 2.0
            float score[64];
            float cake_t_3[32];
            #pragma unroll
            for (int i_ = 0; i_ < 32; ++i_) {
                const int r_ = i_ / 2 * 8 + cake_lane % 4 * 2 + i_ % 2;
                cake_t_3[i_] = j * BK + r_ < 200 ? csq[j * BK + r_] : __uint_as_float(0x7f800000u);
            }
            float cake_t_4[64];
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                cake_t_4[i_] = acc[i_] * static_cast<float>(2.0f);
            }
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                score[i_] = cake_t_3[i_ / 2 % 32 / 2 * 2 + i_ % 2] - cake_t_4[i_];
            }
            // 34: least = row_min(score)
            float least[2];
            #pragma unroll
            for (int r_ = 0; r_ < 2; ++r_) {
                float y_ = __int_as_float(0x7f800000);
                #pragma unroll
                for (int j_ = 0; j_ < 32; ++j_) {
                    const int i_ = (r_ / 2 * 32 + j_ / 2 * 2 + r_ % 2) * 2 + j_ % 2;
                    y_ = fminf(y_, score[i_]);
                }
                y_ = fminf(y_, __shfl_xor_sync(0xffffffffu, y_, 1));
                y_ = fminf(y_, __shfl_xor_sync(0xffffffffu, y_, 2));
                least[r_] = y_;
            }
            // 35: better = least < best
            bool better[2];
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) {
                better[i_] = least[i_] < best[i_];
            }
            // 36: nearest = select(better, row_argmin(score) + j * BK, nearest)
            int cake_t_5[2];
            int cake_t_6[2];
            int cake_t_7[2];
            #pragma unroll
            for (int r_ = 0; r_ < 2; ++r_) {
                float y_ = __int_as_float(0x7f800000);
                int at_ = 0x7fffffff;
                #pragma unroll
                for (int j_ = 0; j_ < 32; ++j_) {
                    const int i_ = (r_ / 2 * 32 + j_ / 2 * 2 + r_ % 2) * 2 + j_ % 2;
                    const float x_ = fminf(score[i_], __int_as_float(0x7f800000));
                    const int k_ = i_ / 2 % 32 / 2 * 8 + cake_lane % 4 * 2 + i_ % 2;
                    if (x_ < y_ || (x_ == y_ && k_ < at_)) y_ = x_, at_ = k_;
                }
                {
                    const float x_ = __shfl_xor_sync(0xffffffffu, y_, 1);
                    const int k_ = __shfl_xor_sync(0xffffffffu, at_, 1);
                    if (x_ < y_ || (x_ == y_ && k_ < at_)) y_ = x_, at_ = k_;
                }
                {
                    const float x_ = __shfl_xor_sync(0xffffffffu, y_, 2);
                    const int k_ = __shfl_xor_sync(0xffffffffu, at_, 2);
                    if (x_ < y_ || (x_ == y_ && k_ < at_)) y_ = x_, at_ = k_;
                }
                cake_t_7[r_] = at_;
            }
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) {
                cake_t_6[i_] = cake_t_7[i_] + static_cast<int>(j * BK);
            }
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) {
                cake_t_5[i_] = better[i_] ? cake_t_6[i_] : nearest[i_];
            }
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) nearest[i_] = cake_t_5[i_];
            // 37: best = select(better, least, best)
            float cake_t_8[2];
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) {
                cake_t_8[i_] = better[i_] ? least[i_] : best[i_];
            }
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) best[i_] = cake_t_8[i_];
        }
        // 38: store(label[block * 128 + warpgroup * 64:+64], nearest)
        if (cake_lane % 4 == 0) {
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) {
                const int r_ = cake_rank % 4 * 16 + i_ / 2 * 16 + i_ % 2 * 8 + cake_lane / 4;
                if (cake_block * 128 + cake_rank / 4 * 64 + r_ < 1000) *reinterpret_cast<unsigned*>(label + cake_block * 128 + cake_rank / 4 * 64 + r_) = static_cast<unsigned>(nearest[i_ + 0]);
            }
        }
    // 39: with role("load", warps=1):
    } else {
        // role load: warps 8 to 8
        [[maybe_unused]] const int cake_rank = cake_warp - 8;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        // 40: with one_thread():
        __syncwarp();
        if (cake_rank == 0 && cake_elect()) {
            // 41: expect_bytes(ready, xs)
            asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" :: "r"(ready), "r"(32768u) : "memory");
            // 42: for p in range(D // 64):
            for (int p = 0; p < D / 64; ++p) {
                // 43: tma_load(xs[p], x[block * 128:+128, p * 64:+64], ready)
                asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" :: "r"(xs + p * 16384), "l"(&cake_map_x), "r"(ready), "r"(static_cast<int>(p * 64)), "r"(static_cast<int>(cake_block * 128)) : "memory");
            }
            // 44: for j in range(ceil_div(K, BK)):
            for (int j = 0; j < (K + BK - 1) / BK; ++j) {
                // 45: s, parity = ring(j, STAGES)
                int s = j % STAGES;
                int parity = j / STAGES & 1;
                // 46: wait(free[s], parity ^ 1)
                cake_wait(free + s * 8, parity ^ 1);
                // 47: expect_bytes(filled[s], cs[s])
                asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" :: "r"(filled + s * 8), "r"(32768u) : "memory");
                // 48: for p in range(D // 64):
                for (int p = 0; p < D / 64; ++p) {
                    // 49: tma_load(cs[s, p], c[j * BK:+BK, p * 64:+64], filled[s])
                    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" :: "r"(cs + s * 32768 + p * 16384), "l"(&cake_map_c), "r"(filled + s * 8), "r"(static_cast<int>(p * 64)), "r"(static_cast<int>(j * BK)) : "memory");
                }
            }
        }
        __syncwarp();
    }
}
