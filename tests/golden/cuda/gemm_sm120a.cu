// gemm M=4095 N=1000 K=776 for sm_120a

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

__device__ __forceinline__ unsigned cake_swizzle_128(unsigned offset) {
    return offset ^ ((offset >> 7 & 7) << 4);
}

__device__ __forceinline__ void cake_ldmatrix_x4(unsigned* r, unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

__device__ __forceinline__ void cake_mma_bf16(float* d, const unsigned* a, const unsigned* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ unsigned cake_pack_bf16(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

extern "C" __global__ void __launch_bounds__(288, 1)
gemm_kernel(
    unsigned short* __restrict__ c,
    const __grid_constant__ CUtensorMap cake_map_a,
    const __grid_constant__ CUtensorMap cake_map_b) {
    constexpr int BM = 128;
    constexpr int BN = 128;
    constexpr int BK = 64;
    constexpr int STAGES = 3;
    constexpr int tiles_m = 32;
    constexpr int tiles_n = 8;
    constexpr int tiles_k = 13;
    extern __shared__ __align__(1024) unsigned char cake_shared[];
    [[maybe_unused]] const unsigned cake_base = (static_cast<unsigned>(__cvta_generic_to_shared(cake_shared)) + 1023u) & ~1023u;
    [[maybe_unused]] const int cake_block = static_cast<int>(blockIdx.x);
    [[maybe_unused]] const int cake_lane = static_cast<int>(threadIdx.x) % 32;
    [[maybe_unused]] const int cake_warp =
        __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    const int cake_blocks = static_cast<int>(gridDim.x);
    const unsigned at = cake_base;
    const unsigned bt = cake_base + 49152;
    const unsigned full = cake_base + 98304;
    const unsigned free = cake_base + 98328;
    // 13: with one_thread():
    __syncwarp();
    if (cake_warp == 0 && cake_elect()) {
        // 14: mbarrier_init(full)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full + 8) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full + 16) : "memory");
        // 15: mbarrier_init(free)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" :: "r"(free) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" :: "r"(free + 8) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" :: "r"(free + 16) : "memory");
        // 16: fence_mbarrier_init()
        asm volatile("fence.mbarrier_init.release.cluster;" :: : "memory");
    }
    __syncwarp();
    // 17: cta_sync()
    __syncthreads();
    // 18: with role("mma", warps=8):
    if (cake_warp < 8) {
        // role mma: warps 0 to 7
        [[maybe_unused]] const int cake_rank = cake_warp;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        // 19: it = 0
        int it = 0;
        // 20: for tile in range(block, tiles_m * tiles_n, blocks):
        for (int tile = cake_block; tile < tiles_m * tiles_n; tile += cake_blocks) {
            // 21: row = tile % tiles_m * BM + warp % 4 * (BM // 4)
            int row = tile % tiles_m * BM + cake_rank % 4 * (BM / 4);
            // 22: col = tile // tiles_m * BN + warp // 4 * (BN // 2)
            int col = tile / tiles_m * BN + cake_rank / 4 * (BN / 2);
            // 23: acc = zeros(f32, BM // 4, BN // 2, layout="mma")
            float acc[64];
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                acc[i_] = 0.0f;
            }
            // 24: with task("main"):
            // task main
            // 25: for j in range(tiles_k):
            for (int j = 0; j < tiles_k; ++j) {
                // 26: s, parity = ring(it, STAGES)
                int s = it % STAGES;
                int parity = it / STAGES & 1;
                // 27: wait(full[s], parity)
                cake_wait(full + s * 8, parity);
                // 28: for kk in unroll(BK // 16):
                #pragma unroll
                for (int kk = 0; kk < BK / 16; ++kk) {
                    // 29: fa = ldmatrix(at[s, warp % 4 * (BM // 4):+(BM // 4), kk * 16:+16], layout="mma_a")
                    unsigned fa[8];
                    #pragma unroll
                    for (int i_ = 0; i_ < 2; ++i_) {
                        #pragma unroll
                        for (int j_ = 0; j_ < 1; ++j_) {
                            cake_ldmatrix_x4(&fa[(i_ * 1 + j_) * 4], at + s * 16384 + i_ * 2048 + cake_swizzle_128((cake_rank % 4 * (BM / 4) + cake_lane % 16) * 128 + (kk * 16 + j_ * 16 + cake_lane / 16 * 8) * 2));
                        }
                    }
                    // 30: fb = ldmatrix(bt[s, warp // 4 * (BN // 2):+(BN // 2), kk * 16:+16], layout="mma_b")
                    unsigned fb[16];
                    #pragma unroll
                    for (int i_ = 0; i_ < 4; ++i_) {
                        cake_ldmatrix_x4(&fb[i_ * 4], bt + s * 16384 + cake_lane / 16 * 1024 + i_ * 2048 + cake_swizzle_128((cake_rank / 4 * (BN / 2) + cake_lane % 8) * 128 + (kk * 16 + cake_lane / 8 % 2 * 8) * 2));
                    }
                    // 31: acc = mma(fa, fb, acc)
                    #pragma unroll
                    for (int k_ = 0; k_ < 1; ++k_) {
                        #pragma unroll
                        for (int i_ = 0; i_ < 2; ++i_) {
                            #pragma unroll
                            for (int j_ = 0; j_ < 8; ++j_) {
                                cake_mma_bf16(&acc[i_ * 32 + j_ * 4], &fa[(i_ * 1 + k_) * 4], &fb[(j_ * 1 + k_) * 2]);
                            }
                        }
                    }
                }
                // 32: fence_async()
                asm volatile("fence.proxy.async.shared::cta;" :: : "memory");
                // 33: arrive(free[s])
                __syncwarp();
                if (cake_lane == 0) {
                    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" :: "r"(free + s * 8) : "memory");
                }
                // 34: it += 1
                it = it + 1;
            }
            // 35: with task("epilogue"):
            // task epilogue
            // 36: store(c[row:+(BM // 4), col:+(BN // 2)], cast(acc, bf16), vector=2)
            unsigned cake_t_1[32];
            #pragma unroll
            for (int i_ = 0; i_ < 32; ++i_) {
                cake_t_1[i_] = cake_pack_bf16(acc[i_ * 2], acc[i_ * 2 + 1]);
            }
            #pragma unroll
            for (int i_ = 0; i_ < 32; ++i_) {
                const int r_ = i_ / 16 * 16 + i_ % 2 * 8 + cake_lane / 4;
                const int k_ = i_ % 16 / 2 * 8 + cake_lane % 4 * 2;
                if (row + r_ < 4095 && col + k_ < 1000) *reinterpret_cast<unsigned*>(c + (row + r_) * 1000 + col + k_) = cake_t_1[i_ + 0];
            }
        }
    // 37: with role("load", warps=1):
    } else {
        // role load: warps 8 to 8
        [[maybe_unused]] const int cake_rank = cake_warp - 8;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        // 38: with one_thread():
        __syncwarp();
        if (cake_rank == 0 && cake_elect()) {
            // 39: it = 0
            int it = 0;
            // 40: for tile in range(block, tiles_m * tiles_n, blocks):
            for (int tile = cake_block; tile < tiles_m * tiles_n; tile += cake_blocks) {
                // 41: row = tile % tiles_m * BM
                int row = tile % tiles_m * BM;
                // 42: col = tile // tiles_m * BN
                int col = tile / tiles_m * BN;
                // 43: for j in range(tiles_k):
                for (int j = 0; j < tiles_k; ++j) {
                    // 44: s, parity = ring(it, STAGES)
                    int s = it % STAGES;
                    int parity = it / STAGES & 1;
                    // 45: wait(free[s], parity ^ 1)
                    cake_wait(free + s * 8, parity ^ 1);
                    // 46: expect_bytes(full[s], at[s], bt[s])
                    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" :: "r"(full + s * 8), "r"(32768u) : "memory");
                    // 47: tma_load(at[s], a[row:+BM, j * BK:+BK], full[s])
                    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" :: "r"(at + s * 16384), "l"(&cake_map_a), "r"(full + s * 8), "r"(static_cast<int>(j * BK)), "r"(static_cast<int>(row)) : "memory");
                    // 48: tma_load(bt[s], b[col:+BN, j * BK:+BK], full[s])
                    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" :: "r"(bt + s * 16384), "l"(&cake_map_b), "r"(full + s * 8), "r"(static_cast<int>(j * BK)), "r"(static_cast<int>(col)) : "memory");
                    // 49: it += 1
                    it = it + 1;
                }
            }
        }
        __syncwarp();
    }
}
