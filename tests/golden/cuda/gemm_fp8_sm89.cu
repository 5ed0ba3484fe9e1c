// gemm_fp8 M=1000 N=1000 K=784 for sm_89

__device__ __forceinline__ unsigned cake_swizzle_64(unsigned offset) {
    return offset ^ ((offset >> 7 & 3) << 4);
}

__device__ __forceinline__ void cake_cp_async_16(unsigned to, const void* from, int count) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
        :: "r"(to), "l"(from), "r"(count) : "memory");
}

__device__ __forceinline__ void cake_ldmatrix_x4(unsigned* r, unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

__device__ __forceinline__ void cake_mma_e4m3(float* d, const unsigned* a, const unsigned* b) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ unsigned cake_pack_bf16(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

extern "C" __global__ void __launch_bounds__(256, 1)
gemm_fp8_kernel(
    const unsigned char* __restrict__ a,
    const unsigned char* __restrict__ b,
    unsigned short* __restrict__ c) {
    constexpr int BM = 128;
    constexpr int BN = 128;
    constexpr int BK = 64;
    constexpr int STAGES = 4;
    constexpr int WM = 32;
    constexpr int WN = 64;
    constexpr int tiles_m = 8;
    constexpr int tiles_k = 13;
    extern __shared__ __align__(1024) unsigned char cake_shared[];
    [[maybe_unused]] const unsigned cake_base = (static_cast<unsigned>(__cvta_generic_to_shared(cake_shared)) + 1023u) & ~1023u;
    [[maybe_unused]] const int cake_block = static_cast<int>(blockIdx.x);
    [[maybe_unused]] const int cake_lane = static_cast<int>(threadIdx.x) % 32;
    [[maybe_unused]] const int cake_warp =
        __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    const unsigned at = cake_base;
    const unsigned bt = cake_base + 32768;
    // 11: with role("mma", warps=BM // WM * (BN // WN)):
    {
        // role mma: warps 0 to 7
        [[maybe_unused]] const int cake_rank = cake_warp;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        // 12: row = block % tiles_m * BM
        int row = cake_block % tiles_m * BM;
        // 13: col = block // tiles_m * BN
        int col = cake_block / tiles_m * BN;
        // 14: wm = warp // (BN // WN) * WM
        int wm = cake_rank / (BN / WN) * WM;
        // 15: wn = warp % (BN // WN) * WN
        int wn = cake_rank % (BN / WN) * WN;
        // 16: acc = zeros(f32, WM, WN, layout="mma")
        float acc[64];
        #pragma unroll
        for (int i_ = 0; i_ < 64; ++i_) {
            acc[i_] = 0.0f;
        }
        // 17: with task("fill"):
        // task fill
        // 18: for j in range(STAGES - 1):
        for (int j = 0; j < STAGES - 1; ++j) {
            // 19: cp_async(at[j], a[row:+BM, j * BK:+BK])
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) {
                const int r_ = cake_thread / 4;
                const int k_ = cake_thread % 4 * 16;
                const bool inside_ = row + i_ * 64 + r_ < 1000 && j * BK + k_ < 784;
                const auto* from_ = a + (inside_ ? (row + i_ * 64 + r_) * 784 + j * BK + k_ : 0);
                cake_cp_async_16(at + j * 8192 + i_ * 4096 + cake_swizzle_64(r_ * 64 + k_), from_, inside_ ? 16 : 0);
            }
            // 20: cp_async(bt[j], b[col:+BN, j * BK:+BK])
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) {
                const int r_ = cake_thread / 4;
                const int k_ = cake_thread % 4 * 16;
                const bool inside_ = col + i_ * 64 + r_ < 1000 && j * BK + k_ < 784;
                const auto* from_ = b + (inside_ ? (col + i_ * 64 + r_) * 784 + j * BK + k_ : 0);
                cake_cp_async_16(bt + j * 8192 + i_ * 4096 + cake_swizzle_64(r_ * 64 + k_), from_, inside_ ? 16 : 0);
            }
            // 21: cp_async_commit()
            asm volatile("cp.async.commit_group;" :: : "memory");
        }
        // 22: with task("main"):
        // task main
        // 23: for j in range(tiles_k):
        for (int j = 0; j < tiles_k; ++j) {
            // 24: cp_async_wait(STAGES - 2)
            asm volatile("cp.async.wait_group 2;" :: : "memory");
            // 25: cta_sync()
            __syncthreads();
            // 26: s = j % STAGES
            int s = j % STAGES;
            // 27: for k in unroll(BK // 32):
            #pragma unroll
            for (int k = 0; k < BK / 32; ++k) {
                // 28: fa = ldmatrix(at[s, wm:+WM, k * 32:+32], layout="mma_a")
                unsigned fa[8];
                #pragma unroll
                for (int i_ = 0; i_ < 2; ++i_) {
                    #pragma unroll
                    for (int j_ = 0; j_ < 1; ++j_) {
                        cake_ldmatrix_x4(&fa[(i_ * 1 + j_) * 4], at + s * 8192 + i_ * 1024 + cake_swizzle_64((wm + cake_lane % 16) * 64 + k * 32 + j_ * 32 + cake_lane / 16 * 16));
                    }
                }
                // 29: fb = ldmatrix(bt[s, wn:+WN, k * 32:+32], layout="mma_b")
                unsigned fb[16];
                #pragma unroll
                for (int i_ = 0; i_ < 4; ++i_) {
                    cake_ldmatrix_x4(&fb[i_ * 4], bt + s * 8192 + cake_lane / 16 * 512 + i_ * 1024 + cake_swizzle_64((wn + cake_lane % 8) * 64 + k * 32 + cake_lane / 8 % 2 * 16));
                }
                // 30: acc = mma(fa, fb, acc)
                #pragma unroll
                for (int k_ = 0; k_ < 1; ++k_) {
                    #pragma unroll
                    for (int i_ = 0; i_ < 2; ++i_) {
                        #pragma unroll
                        for (int j_ = 0; j_ < 8; ++j_) {
                            cake_mma_e4m3(&acc[i_ * 32 + j_ * 4], &fa[(i_ * 1 + k_) * 4], &fb[(j_ * 1 + k_) * 2]);
                        }
                    }
                }
            }
            // 31: ahead = j + STAGES - 1
            int ahead = j + STAGES - 1;
            // 32: cp_async(at[ahead % STAGES], a[row:+BM, ahead * BK:+BK])
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) {
                const int r_ = cake_thread / 4;
                const int k_ = cake_thread % 4 * 16;
                const bool inside_ = row + i_ * 64 + r_ < 1000 && ahead * BK + k_ < 784;
                const auto* from_ = a + (inside_ ? (row + i_ * 64 + r_) * 784 + ahead * BK + k_ : 0);
                cake_cp_async_16(at + ahead % STAGES * 8192 + i_ * 4096 + cake_swizzle_64(r_ * 64 + k_), from_, inside_ ? 16 : 0);
            }
            // 33: cp_async(bt[ahead % STAGES], b[col:+BN, ahead * BK:+BK])
            #pragma unroll
            for (int i_ = 0; i_ < 2; ++i_) {
                const int r_ = cake_thread / 4;
                const int k_ = cake_thread % 4 * 16;
                const bool inside_ = col + i_ * 64 + r_ < 1000 && ahead * BK + k_ < 784;
                const auto* from_ = b + (inside_ ? (col + i_ * 64 + r_) * 784 + ahead * BK + k_ : 0);
                cake_cp_async_16(bt + ahead % STAGES * 8192 + i_ * 4096 + cake_swizzle_64(r_ * 64 + k_), from_, inside_ ? 16 : 0);
            }
            // 34: cp_async_commit()
            asm volatile("cp.async.commit_group;" :: : "memory");
        }
        // 35: with task("epilogue"):
        // task epilogue
        // 36: cp_async_wait(0)
        asm volatile("cp.async.wait_group 0;" :: : "memory");
        // 37: store(c[row + wm:+WM, col + wn:+WN], cast(acc, bf16), vector=2)
        unsigned cake_t_1[32];
        #pragma unroll
        for (int i_ = 0; i_ < 32; ++i_) {
            cake_t_1[i_] = cake_pack_bf16(acc[i_ * 2], acc[i_ * 2 + 1]);
        }
        #pragma unroll
        for (int i_ = 0; i_ < 32; ++i_) {
            const int r_ = i_ / 16 * 16 + i_ % 2 * 8 + cake_lane / 4;
            const int k_ = i_ % 16 / 2 * 8 + cake_lane % 4 * 2;
            if (row + wm + r_ < 1000 && col + wn + k_ < 1000) *reinterpret_cast<unsigned*>(c + (row + wm + r_) * 1000 + col + wn + k_) = cake_t_1[i_ + 0];
        }
    }
}
