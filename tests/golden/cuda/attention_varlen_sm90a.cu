// attention_varlen B=3 S=600 D=128 for sm_90a

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

__device__ __forceinline__ float cake_exp2(float x0) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x0));
    return y;
}

__device__ __forceinline__ unsigned cake_pack_bf16(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ unsigned long long cake_descriptor_128_mn_16384_1024(unsigned address) {
    return (address & 0x3ffffu) >> 4 | 1024ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ __forceinline__ void
cake_wgmma_m64n128k16_bf16_registers_mn(float (&d)[64], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b) : "memory");
}

__device__ __forceinline__ float cake_div(float x0, float x1) {
    float y;
    asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(x0), "f"(x1));
    return y;
}

extern "C" __global__ void __launch_bounds__(384, 1)
attention_varlen_kernel(
    const int* __restrict__ lengths,
    unsigned short* __restrict__ o,
    const __grid_constant__ CUtensorMap cake_map_q,
    const __grid_constant__ CUtensorMap cake_map_k,
    const __grid_constant__ CUtensorMap cake_map_v) {
    constexpr int BN = 128;
    constexpr int STAGES = 2;
    constexpr float SCALE = 0.12751743f;
    constexpr int tiles = 5;
    extern __shared__ __align__(1024) unsigned char cake_shared[];
    [[maybe_unused]] const unsigned cake_base = (static_cast<unsigned>(__cvta_generic_to_shared(cake_shared)) + 1023u) & ~1023u;
    [[maybe_unused]] const int cake_block = static_cast<int>(blockIdx.x);
    [[maybe_unused]] const int cake_lane = static_cast<int>(threadIdx.x) % 32;
    [[maybe_unused]] const int cake_warp =
        __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    const unsigned qs = cake_base;
    const unsigned ks = cake_base + 32768;
    const unsigned vs = cake_base + 98304;
    const unsigned ready = cake_base + 163840;
    const unsigned filled = cake_base + 163848;
    const unsigned free = cake_base + 163864;
    // 7: head = block // tiles
    int head = cake_block / tiles;
    // 8: row = block % tiles * 128
    int row = cake_block % tiles * 128;
    // 15: with one_thread():
    __syncwarp();
    if (cake_warp == 0 && cake_elect()) {
        // 16: mbarrier_init(ready)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(ready) : "memory");
        // 17: mbarrier_init(filled)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(filled) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(filled + 8) : "memory");
        // 18: mbarrier_init(free)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" :: "r"(free) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" :: "r"(free + 8) : "memory");
        // 19: fence_mbarrier_init()
        asm volatile("fence.mbarrier_init.release.cluster;" :: : "memory");
    }
    __syncwarp();
    // 20: cta_sync()
    __syncthreads();
    // 21: with role("softmax", warpgroups=2):
    if (cake_warp < 8) {
        // role softmax: warps 0 to 7
        [[maybe_unused]] const int cake_rank = cake_warp;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        // 22: setmaxnreg_inc(232)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;" :: : "memory");
        // 23: n = scalar(lengths[head], 0, S)
        int n = 0;
        n = __shfl_sync(0xffffffffu, lengths[head], 0);
        // 24: top = full(f32, 64, value=-inf, layout="wgmma_rows")
        float top[2];
        #pragma unroll
        for (int i_ = 0; i_ < 2; ++i_) {
            top[i_] = __int_as_float(0xff800000);
        }
        // 25: total = full(f32, 64, value=0.0, layout="wgmma_rows")
        float total[2];
        #pragma unroll
        for (int i_ = 0; i_ < 2; ++i_) {
            total[i_] = 0.0f;
        }
        // 26: acc = zeros(f32, 64, 128, layout="wgmma")
        float acc[64];
        #pragma unroll
        for (int i_ = 0; i_ < 64; ++i_) {
            acc[i_] = 0.0f;
        }
        // 27: wait(ready, 0)
        cake_wait(ready, 0);
        // 28: for j in range(ceil_div(n, BN)):
        for (int j = 0; j < (n + BN - 1) / BN; ++j) {
            // 29: s, parity = ring(j, STAGES)
            int s = j % STAGES;
            int parity = j / STAGES & 1;
            // 30: with task("scores"):
            // task scores
            // 31: score = zeros(f32, 64, BN, layout="wgmma")
            float score[64];
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                score[i_] = 0.0f;
            }
            // 32: wait(filled[s], parity)
            cake_wait(filled + s * 8, parity);
            // 33: wgmma_fence()
            asm volatile("wgmma.fence.sync.aligned;" :: : "memory");
            // 34: for p in unroll(2):
            #pragma unroll
            for (int p = 0; p < 2; ++p) {
                // 35: score = wgmma(qs[p, warpgroup * 64:+64, :], ks[s, p], score)
                const unsigned long long cake_descriptor_1 = cake_descriptor_128(qs + p * 16384 + cake_rank / 4 * 8192);
                const unsigned long long cake_descriptor_2 = cake_descriptor_128(ks + s * 32768 + p * 16384);
                cake_wgmma_m64n128k16_bf16(score, cake_descriptor_1 + 0, cake_descriptor_2 + 0);
                cake_wgmma_m64n128k16_bf16(score, cake_descriptor_1 + 2, cake_descriptor_2 + 2);
                cake_wgmma_m64n128k16_bf16(score, cake_descriptor_1 + 4, cake_descriptor_2 + 4);
                cake_wgmma_m64n128k16_bf16(score, cake_descriptor_1 + 6, cake_descriptor_2 + 6);
            }
            // 36: wgmma_commit()
            asm volatile("wgmma.commit_group.sync.aligned;" :: : "memory");
            // 37: wgmma_wait(0)
            asm volatile("wgmma.wait_group.sync.aligned 0;" :: : "memory");
            cake_keep_64(score);
            // 38: with task("weights"):
            // task weights
            // 39: masked = select(iota(score, 1) + j * BN < n, score * SCALE, -inf)
            float masked[64];
            bool cake_t_3[64];
            int cake_t_4[64];
            int cake_t_5[64];
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                cake_t_5[i_] = i_ / 2 % 32 / 2 * 8 + cake_lane % 4 * 2 + i_ % 2;
            }
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                cake_t_4[i_] = cake_t_5[i_] + static_cast<int>(j * BN);
            }
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                cake_t_3[i_] = cake_t_4[i_] < static_cast<int>(n);
            }
            float cake_t_6[64];
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                cake_t_6[i_] = score[i_] * static_cast<float>(SCALE);
            }
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                masked[i_] = cake_t_3[i_] ? cake_t_6[i_] : static_cast<float>(__int_as_float(0xff800000));
            }
            // 40: peak = maximum(top, row_max(masked))
            float peak[2];
            float cake_t_7[2];
            #pragma unroll
            for (int r_ = 0; r_ < 2; ++r_) {
                float y_ = __int_as_float(0xff800000);
                #pragma unroll
                for (int j_ = 0; j_ < 32; ++j_) {
                    const int i_ = (r_ / 2 * 32 + j_ / 2 * 2 + r_ % 2) * 2 + j_ % 2;
                    y_ = fmaxf(y_, masked[i_]);
                }
                y_ = fmaxf(y_, __shfl_xor_sync(0xffffffffu, y_, 1));
                y_ = fmaxf(y_, __shfl_xor_sync(0xffffffffu, y_, 2));
                cake_t_7[r_] = y_;
            }
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) {
                peak[i_] = fmaxf(top[i_], cake_t_7[i_]);
            }
            // 41: shrink = exp2(top - peak)
            float shrink[2];
            float cake_t_8[2];
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) {
                cake_t_8[i_] = top[i_] - peak[i_];
            }
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) {
                shrink[i_] = cake_exp2(cake_t_8[i_]);
            }
            // 42: weight = exp2(masked - peak)
            float weight[64];
            float cake_t_9[64];
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                cake_t_9[i_] = masked[i_] - peak[i_ / 64 * 2 + i_ / 2 % 2];
            }
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                weight[i_] = cake_exp2(cake_t_9[i_]);
            }
            // 43: total = total * shrink + row_sum(weight)
            float cake_t_10[2];
            float cake_t_11[2];
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) {
                cake_t_11[i_] = total[i_] * shrink[i_];
            }
            float cake_t_12[2];
            #pragma unroll
            for (int r_ = 0; r_ < 2; ++r_) {
                float y_ = 0.0f;
                #pragma unroll
                for (int j_ = 0; j_ < 32; ++j_) {
                    const int i_ = (r_ / 2 * 32 + j_ / 2 * 2 + r_ % 2) * 2 + j_ % 2;
                    y_ = y_ + weight[i_];
                }
                y_ = y_ + __shfl_xor_sync(0xffffffffu, y_, 1);
                y_ = y_ + __shfl_xor_sync(0xffffffffu, y_, 2);
                cake_t_12[r_] = y_;
            }
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) {
                cake_t_10[i_] = cake_t_11[i_] + cake_t_12[i_];
            }
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) total[i_] = cake_t_10[i_];
            // 44: top = peak
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) top[i_] = peak[i_];
            // 45: acc *= shrink
            float cake_t_13[64];
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                cake_t_13[i_] = acc[i_] * shrink[i_ / 64 * 2 + i_ / 2 % 2];
            }
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) acc[i_] = cake_t_13[i_];
            // 46: half = cast(weight, bf16)
            unsigned half[32];
            #pragma unroll
            for (int i_ = 0; i_ < 32; ++i_) {
                half[i_] = cake_pack_bf16(weight[i_ * 2], weight[i_ * 2 + 1]);
            }
            // 47: with task("values"):
            // task values
            // 48: wgmma_fence()
            asm volatile("wgmma.fence.sync.aligned;" :: : "memory");
            // 49: acc = wgmma(half, vs[s], acc, b_major="MN")
            const unsigned long long cake_descriptor_14 = cake_descriptor_128_mn_16384_1024(vs + s * 32768);
            cake_wgmma_m64n128k16_bf16_registers_mn(acc, half[0], half[1], half[2], half[3], cake_descriptor_14 + 0);
            cake_wgmma_m64n128k16_bf16_registers_mn(acc, half[4], half[5], half[6], half[7], cake_descriptor_14 + 128);
            cake_wgmma_m64n128k16_bf16_registers_mn(acc, half[8], half[9], half[10], half[11], cake_descriptor_14 + 256);
            cake_wgmma_m64n128k16_bf16_registers_mn(acc, half[12], half[13], half[14], half[15], cake_descriptor_14 + 384);
            cake_wgmma_m64n128k16_bf16_registers_mn(acc, half[16], half[17], half[18], half[19], cake_descriptor_14 + 512);
            cake_wgmma_m64n128k16_bf16_registers_mn(acc, half[20], half[21], half[22], half[23], cake_descriptor_14 + 640);
            cake_wgmma_m64n128k16_bf16_registers_mn(acc, half[24], half[25], half[26], half[27], cake_descriptor_14 + 768);
            cake_wgmma_m64n128k16_bf16_registers_mn(acc, half[28], half[29], half[30], half[31], cake_descriptor_14 + 896);
            // 50: wgmma_commit()
            asm volatile("wgmma.commit_group.sync.aligned;" :: : "memory");
            // 51: wgmma_wait(0)
            asm volatile("wgmma.wait_group.sync.aligned 0;" :: : "memory");
            cake_keep_64(acc);
            cake_keep_64(score);
            // 52: arrive(free[s])
            __syncwarp();
            if (cake_lane == 0) {
                asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" :: "r"(free + s * 8) : "memory");
            }
        }
        // 53: with task("store"):
        // task store
        // 54: inside = both(iota(total) + row + warpgroup * 64 < n, total > 0.0)
        bool inside[2];
        bool cake_t_15[2];
        int cake_t_16[2];
        int cake_t_17[2];
        int cake_t_18[2];
        #pragma unroll
        for (int i_ = 0; i_ < 2; ++i_) {
            cake_t_18[i_] = cake_rank % 4 * 16 + i_ / 2 * 16 + i_ % 2 * 8 + cake_lane / 4;
        }
        #pragma unroll
        for (int i_ = 0; i_ < 2; ++i_) {
            cake_t_17[i_] = cake_t_18[i_] + static_cast<int>(row);
        }
        #pragma unroll
        for (int i_ = 0; i_ < 2; ++i_) {
            cake_t_16[i_] = cake_t_17[i_] + static_cast<int>(cake_rank / 4 * 64);
        }
        #pragma unroll
        for (int i_ = 0; i_ < 2; ++i_) {
            cake_t_15[i_] = cake_t_16[i_] < static_cast<int>(n);
        }
        bool cake_t_19[2];
        #pragma unroll
        for (int i_ = 0; i_ < 2; ++i_) {
            cake_t_19[i_] = total[i_] > static_cast<float>(0.0f);
        }
        #pragma unroll
        for (int i_ = 0; i_ < 2; ++i_) {
            inside[i_] = cake_t_15[i_] && cake_t_19[i_];
        }
        // 55: store(o[head, row + warpgroup * 64:+64, 0:+128], cast(select(inside, acc / total, 0.0), bf16), vector=2)
        unsigned cake_t_20[32];
        float cake_t_21[64];
        float cake_t_22[64];
        #pragma unroll
        for (int i_ = 0; i_ < 64; ++i_) {
            cake_t_22[i_] = cake_div(acc[i_], total[i_ / 64 * 2 + i_ / 2 % 2]);
        }
        #pragma unroll
        for (int i_ = 0; i_ < 64; ++i_) {
            cake_t_21[i_] = inside[i_ / 64 * 2 + i_ / 2 % 2] ? cake_t_22[i_] : static_cast<float>(0.0f);
        }
        #pragma unroll
        for (int i_ = 0; i_ < 32; ++i_) {
            cake_t_20[i_] = cake_pack_bf16(cake_t_21[i_ * 2], cake_t_21[i_ * 2 + 1]);
        }
        #pragma unroll
        for (int i_ = 0; i_ < 32; ++i_) {
            const int r_ = cake_rank % 4 * 16 + i_ / 32 * 16 + i_ % 2 * 8 + cake_lane / 4;
            const int k_ = i_ % 32 / 2 * 8 + cake_lane % 4 * 2;
            if (row + cake_rank / 4 * 64 + r_ < 600) *reinterpret_cast<unsigned*>(o + (head * 600 + row + cake_rank / 4 * 64 + r_) * 128 + k_) = cake_t_20[i_ + 0];
        }
    // 56: with role("load", warpgroups=1):
    } else {
        // role load: warps 8 to 11
        [[maybe_unused]] const int cake_rank = cake_warp - 8;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        // 57: setmaxnreg_dec(40)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;" :: : "memory");
        // 58: n = scalar(lengths[head], 0, S)
        int n = 0;
        n = __shfl_sync(0xffffffffu, lengths[head], 0);
        // 59: with one_thread():
        __syncwarp();
        if (cake_rank == 0 && cake_elect()) {
            // 60: expect_bytes(ready, qs)
            asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" :: "r"(ready), "r"(32768u) : "memory");
            // 61: for p in range(2):
            for (int p = 0; p < 2; ++p) {
                // 62: tma_load(qs[p], q[head, row:+128, p * 64:+64], ready)
                asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" :: "r"(qs + p * 16384), "l"(&cake_map_q), "r"(ready), "r"(static_cast<int>(p * 64)), "r"(static_cast<int>(row)), "r"(static_cast<int>(head)) : "memory");
            }
            // 63: for j in range(ceil_div(n, BN)):
            for (int j = 0; j < (n + BN - 1) / BN; ++j) {
                // 64: s, parity = ring(j, STAGES)
                int s = j % STAGES;
                int parity = j / STAGES & 1;
                // 65: wait(free[s], parity ^ 1)
                cake_wait(free + s * 8, parity ^ 1);
                // 66: expect_bytes(filled[s], ks[s], vs[s])
                asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" :: "r"(filled + s * 8), "r"(65536u) : "memory");
                // 67: for p in range(2):
                for (int p = 0; p < 2; ++p) {
                    // 68: tma_load(ks[s, p], k[head, j * BN:+BN, p * 64:+64], filled[s])
                    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" :: "r"(ks + s * 32768 + p * 16384), "l"(&cake_map_k), "r"(filled + s * 8), "r"(static_cast<int>(p * 64)), "r"(static_cast<int>(j * BN)), "r"(static_cast<int>(head)) : "memory");
                    // 69: tma_load(vs[s, p], v[head, j * BN:+BN, p * 64:+64], filled[s])
                    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" :: "r"(vs + s * 32768 + p * 16384), "l"(&cake_map_v), "r"(filled + s * 8), "r"(static_cast<int>(p * 64)), "r"(static_cast<int>(j * BN)), "r"(static_cast<int>(head)) : "memory");
                }
            }
        }
        __syncwarp();
    }
}
