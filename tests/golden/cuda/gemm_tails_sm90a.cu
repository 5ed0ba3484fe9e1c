// gemm M=4095 N=1000 K=776 for sm_90a

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

__device__ __forceinline__ void cake_cp_async_16(unsigned to, const void* from, int count) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
        :: "r"(to), "l"(from), "r"(count) : "memory");
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

__device__ __forceinline__ unsigned cake_pack_bf16(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

extern "C" __global__ void __launch_bounds__(384, 1)
gemm_kernel(
    const unsigned short* __restrict__ a,
    const __grid_constant__ CUtensorMap cake_map_a,
    const __grid_constant__ CUtensorMap cake_map_b,
    const __grid_constant__ CUtensorMap cake_map_c) {
    constexpr int BM = 128;
    constexpr int BN = 128;
    constexpr int BK = 64;
    constexpr int STAGES = 4;
    constexpr int M = 4095;
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
    const unsigned bt = cake_base + 65536;
    const unsigned ct = cake_base + 131072;
    const unsigned full = cake_base + 163840;
    const unsigned free = cake_base + 163872;
    // 14: with one_thread():
    __syncwarp();
    if (cake_warp == 0 && cake_elect()) {
        // 15: mbarrier_init(full)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 5;" :: "r"(full) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 5;" :: "r"(full + 8) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 5;" :: "r"(full + 16) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 5;" :: "r"(full + 24) : "memory");
        // 16: mbarrier_init(free)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" :: "r"(free) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" :: "r"(free + 8) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" :: "r"(free + 16) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" :: "r"(free + 24) : "memory");
        // 17: fence_mbarrier_init()
        asm volatile("fence.mbarrier_init.release.cluster;" :: : "memory");
    }
    __syncwarp();
    // 18: cta_sync()
    __syncthreads();
    // 19: with role("load", warpgroups=1):
    if (cake_warp < 4) {
        // role load: warps 0 to 3
        [[maybe_unused]] const int cake_rank = cake_warp;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        // 20: setmaxnreg_dec(56)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;" :: : "memory");
        // 21: it = 0
        int it = 0;
        // 22: for tile in range(block, tiles_m * tiles_n, blocks):
        for (int tile = cake_block; tile < tiles_m * tiles_n; tile += cake_blocks) {
            // 23: row = tile % tiles_m * BM
            int row = tile % tiles_m * BM;
            // 24: col = tile // tiles_m * BN
            int col = tile / tiles_m * BN;
            // 25: for j in range(tiles_k):
            for (int j = 0; j < tiles_k; ++j) {
                // 26: s, parity = ring(it, STAGES)
                int s = it % STAGES;
                int parity = it / STAGES & 1;
                // 27: wait(free[s], parity ^ 1)
                cake_wait(free + s * 8, parity ^ 1);
                // 28: if row + BM <= M:
                if (row + BM <= M) {
                    // 29: with one_thread():
                    __syncwarp();
                    if (cake_rank == 0 && cake_elect()) {
                        // 30: expect_bytes(full[s], at[s], bt[s])
                        asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" :: "r"(full + s * 8), "r"(32768u) : "memory");
                        // 31: tma_load(at[s], a[row:+BM, j * BK:+BK], full[s])
                        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" :: "r"(at + s * 16384), "l"(&cake_map_a), "r"(full + s * 8), "r"(static_cast<int>(j * BK)), "r"(static_cast<int>(row)) : "memory");
                        // 32: tma_load(bt[s], b[col:+BN, j * BK:+BK], full[s])
                        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" :: "r"(bt + s * 16384), "l"(&cake_map_b), "r"(full + s * 8), "r"(static_cast<int>(j * BK)), "r"(static_cast<int>(col)) : "memory");
                    }
                    __syncwarp();
                } else {
                    // 34: with one_thread():
                    __syncwarp();
                    if (cake_rank == 0 && cake_elect()) {
                        // 35: expect_bytes(full[s], bt[s])
                        asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" :: "r"(full + s * 8), "r"(16384u) : "memory");
                        // 36: tma_load(bt[s], b[col:+BN, j * BK:+BK], full[s])
                        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" :: "r"(bt + s * 16384), "l"(&cake_map_b), "r"(full + s * 8), "r"(static_cast<int>(j * BK)), "r"(static_cast<int>(col)) : "memory");
                    }
                    __syncwarp();
                    // 37: cp_async(at[s], a[row:+BM, j * BK:+BK])
                    #pragma unroll
                    for (int i_ = 0; i_ < 8; ++i_) {
                        const int r_ = cake_thread / 8;
                        const int k_ = cake_thread % 8 * 8;
                        const bool inside_ = row + i_ * 16 + r_ < 4095 && j * BK + k_ < 776;
                        const auto* from_ = a + (inside_ ? (row + i_ * 16 + r_) * 776 + j * BK + k_ : 0);
                        cake_cp_async_16(at + s * 16384 + i_ * 2048 + cake_swizzle_128(r_ * 128 + k_ * 2), from_, inside_ ? 16 : 0);
                    }
                    // 38: cp_async_arrive(full[s])
                    asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" :: "r"(full + s * 8) : "memory");
                }
                // 39: arrive(full[s])
                __syncwarp();
                if (cake_lane == 0) {
                    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" :: "r"(full + s * 8) : "memory");
                }
                // 40: it += 1
                it = it + 1;
            }
        }
    // 41: with role("mma", warpgroups=BM // 64):
    } else {
        // role mma: warps 4 to 11
        [[maybe_unused]] const int cake_rank = cake_warp - 4;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        // 42: setmaxnreg_inc(224)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;" :: : "memory");
        // 43: it = 0
        int it = 0;
        // 44: for tile in range(block, tiles_m * tiles_n, blocks):
        for (int tile = cake_block; tile < tiles_m * tiles_n; tile += cake_blocks) {
            // 45: row = tile % tiles_m * BM + warpgroup * 64
            int row = tile % tiles_m * BM + cake_rank / 4 * 64;
            // 46: col = tile // tiles_m * BN
            int col = tile / tiles_m * BN;
            // 47: acc = zeros(f32, 64, BN, layout="wgmma")
            float acc[64];
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                acc[i_] = 0.0f;
            }
            // 48: with task("main"):
            // task main
            // 49: for j in range(tiles_k):
            for (int j = 0; j < tiles_k; ++j) {
                // 50: s, parity = ring(it, STAGES)
                int s = it % STAGES;
                int parity = it / STAGES & 1;
                // 51: wait(full[s], parity)
                cake_wait(full + s * 8, parity);
                // 52: if tile % tiles_m * BM + BM > M:
                if (tile % tiles_m * BM + BM > M) {
                    // 53: fence_async()
                    asm volatile("fence.proxy.async.shared::cta;" :: : "memory");
                }
                // 54: wgmma_fence()
                asm volatile("wgmma.fence.sync.aligned;" :: : "memory");
                // 55: acc = wgmma(at[s, warpgroup * 64:+64, :], bt[s], acc)
                const unsigned long long cake_descriptor_1 = cake_descriptor_128(at + s * 16384 + cake_rank / 4 * 8192);
                const unsigned long long cake_descriptor_2 = cake_descriptor_128(bt + s * 16384);
                cake_wgmma_m64n128k16_bf16(acc, cake_descriptor_1 + 0, cake_descriptor_2 + 0);
                cake_wgmma_m64n128k16_bf16(acc, cake_descriptor_1 + 2, cake_descriptor_2 + 2);
                cake_wgmma_m64n128k16_bf16(acc, cake_descriptor_1 + 4, cake_descriptor_2 + 4);
                cake_wgmma_m64n128k16_bf16(acc, cake_descriptor_1 + 6, cake_descriptor_2 + 6);
                // 56: wgmma_commit()
                asm volatile("wgmma.commit_group.sync.aligned;" :: : "memory");
                // 57: wgmma_wait(0)
                asm volatile("wgmma.wait_group.sync.aligned 0;" :: : "memory");
                cake_keep_64(acc);
                // 58: arrive(free[s])
                __syncwarp();
                if (cake_lane == 0) {
                    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" :: "r"(free + s * 8) : "memory");
                }
                // 59: it += 1
                it = it + 1;
            }
            // 60: with task("epilogue"):
            // task epilogue
            // 61: with one_thread("warpgroup"):
            __syncwarp();
            if (cake_rank % 4 == 0 && cake_elect()) {
                // 62: bulk_wait_read(0)
                asm volatile("cp.async.bulk.wait_group.read 0;" :: : "memory");
            }
            __syncwarp();
            // 63: named_sync(1 + warpgroup, warps=4)
            asm volatile("bar.sync %0, 128;" :: "r"(static_cast<unsigned>(1 + cake_rank / 4)) : "memory");
            // 64: stmatrix(ct[:, warpgroup * 64:+64, :], cast(acc, bf16))
            unsigned cake_t_3[32];
            #pragma unroll
            for (int i_ = 0; i_ < 32; ++i_) {
                cake_t_3[i_] = cake_pack_bf16(acc[i_ * 2], acc[i_ * 2 + 1]);
            }
            __syncwarp();
            const int cake_row_4 = cake_rank % 4 * 16 + cake_lane % 16, cake_half_5 = cake_lane / 16 * 8;
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 8192 + cake_swizzle_128(cake_row_4 * 128 + cake_half_5 * 2)), "r"(cake_t_3[0]), "r"(cake_t_3[1]), "r"(cake_t_3[2]), "r"(cake_t_3[3]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 8192 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 16) * 2)), "r"(cake_t_3[4]), "r"(cake_t_3[5]), "r"(cake_t_3[6]), "r"(cake_t_3[7]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 8192 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 32) * 2)), "r"(cake_t_3[8]), "r"(cake_t_3[9]), "r"(cake_t_3[10]), "r"(cake_t_3[11]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 8192 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 48) * 2)), "r"(cake_t_3[12]), "r"(cake_t_3[13]), "r"(cake_t_3[14]), "r"(cake_t_3[15]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + 16384 + cake_rank / 4 * 8192 + cake_swizzle_128(cake_row_4 * 128 + cake_half_5 * 2)), "r"(cake_t_3[16]), "r"(cake_t_3[17]), "r"(cake_t_3[18]), "r"(cake_t_3[19]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + 16384 + cake_rank / 4 * 8192 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 16) * 2)), "r"(cake_t_3[20]), "r"(cake_t_3[21]), "r"(cake_t_3[22]), "r"(cake_t_3[23]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + 16384 + cake_rank / 4 * 8192 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 32) * 2)), "r"(cake_t_3[24]), "r"(cake_t_3[25]), "r"(cake_t_3[26]), "r"(cake_t_3[27]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + 16384 + cake_rank / 4 * 8192 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 48) * 2)), "r"(cake_t_3[28]), "r"(cake_t_3[29]), "r"(cake_t_3[30]), "r"(cake_t_3[31]) : "memory");
            __syncwarp();
            // 65: fence_async()
            asm volatile("fence.proxy.async.shared::cta;" :: : "memory");
            // 66: named_sync(1 + warpgroup, warps=4)
            asm volatile("bar.sync %0, 128;" :: "r"(static_cast<unsigned>(1 + cake_rank / 4)) : "memory");
            // 67: with one_thread("warpgroup"):
            __syncwarp();
            if (cake_rank % 4 == 0 && cake_elect()) {
                // 68: for p in range(BN // 64):
                for (int p = 0; p < BN / 64; ++p) {
                    // 69: tma_store(c[row:+64, col + p * 64:+64], ct[p, warpgroup * 64:+64, :])
                    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" :: "l"(&cake_map_c), "r"(ct + p * 16384 + cake_rank / 4 * 8192), "r"(static_cast<int>(col + p * 64)), "r"(static_cast<int>(row)) : "memory");
                }
                // 70: bulk_commit()
                asm volatile("cp.async.bulk.commit_group;" :: : "memory");
            }
            __syncwarp();
        }
        // 71: with one_thread("warpgroup"):
        __syncwarp();
        if (cake_rank % 4 == 0 && cake_elect()) {
            // 72: bulk_wait_read(0)
            asm volatile("cp.async.bulk.wait_group.read 0;" :: : "memory");
        }
        __syncwarp();
    }
}
