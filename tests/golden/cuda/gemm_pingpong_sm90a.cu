// gemm_pingpong M=4095 N=1000 K=776 for sm_90a

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
cake_wgmma_m64n256k16_bf16(float (&d)[128], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
        : "l"(a), "l"(b) : "memory");
}

__device__ __forceinline__ void cake_keep_128(float (&d)[128]) {
    asm volatile("" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127]) :: "memory");
}

__device__ __forceinline__ unsigned cake_pack_bf16(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ unsigned cake_swizzle_128(unsigned offset) {
    return offset ^ ((offset >> 7 & 7) << 4);
}

extern "C" __global__ void __launch_bounds__(384, 1)
gemm_pingpong_kernel(
    const __grid_constant__ CUtensorMap cake_map_a,
    const __grid_constant__ CUtensorMap cake_map_b,
    const __grid_constant__ CUtensorMap cake_map_c) {
    constexpr int BN = 256;
    constexpr int BK = 64;
    constexpr int STAGES = 4;
    constexpr int tiles_m = 64;
    constexpr int tiles_n = 4;
    constexpr int tiles_k = 13;
    extern __shared__ __align__(1024) unsigned char cake_shared[];
    [[maybe_unused]] const unsigned cake_base = (static_cast<unsigned>(__cvta_generic_to_shared(cake_shared)) + 1023u) & ~1023u;
    [[maybe_unused]] const int cake_block = static_cast<int>(blockIdx.x);
    [[maybe_unused]] const int cake_lane = static_cast<int>(threadIdx.x) % 32;
    [[maybe_unused]] const int cake_warp =
        __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    const int cake_blocks = static_cast<int>(gridDim.x);
    const unsigned at = cake_base;
    const unsigned bt = cake_base + 32768;
    const unsigned ct = cake_base + 163840;
    const unsigned full = cake_base + 229376;
    const unsigned free = cake_base + 229408;
    const unsigned turn = cake_base + 229440;
    // 15: with one_thread():
    __syncwarp();
    if (cake_warp == 0 && cake_elect()) {
        // 16: mbarrier_init(full)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full + 8) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full + 16) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full + 24) : "memory");
        // 17: mbarrier_init(free)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" :: "r"(free) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" :: "r"(free + 8) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" :: "r"(free + 16) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" :: "r"(free + 24) : "memory");
        // 18: mbarrier_init(turn)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" :: "r"(turn) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" :: "r"(turn + 8) : "memory");
        // 19: fence_mbarrier_init()
        asm volatile("fence.mbarrier_init.release.cluster;" :: : "memory");
    }
    __syncwarp();
    // 20: cta_sync()
    __syncthreads();
    // 21: with role("load", warpgroups=1):
    if (cake_warp < 4) {
        // role load: warps 0 to 3
        [[maybe_unused]] const int cake_rank = cake_warp;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        // 22: setmaxnreg_dec(40)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;" :: : "memory");
        // 23: with one_thread():
        __syncwarp();
        if (cake_rank == 0 && cake_elect()) {
            // 24: it = 0
            int it = 0;
            // 25: for tile in range(block, tiles_m * tiles_n, blocks):
            for (int tile = cake_block; tile < tiles_m * tiles_n; tile += cake_blocks) {
                // 26: row = tile % tiles_m * 64
                int row = tile % tiles_m * 64;
                // 27: col = tile // tiles_m * BN
                int col = tile / tiles_m * BN;
                // 28: for j in range(tiles_k):
                for (int j = 0; j < tiles_k; ++j) {
                    // 29: s, parity = ring(it, STAGES)
                    int s = it % STAGES;
                    int parity = it / STAGES & 1;
                    // 30: wait(free[s], parity ^ 1)
                    cake_wait(free + s * 8, parity ^ 1);
                    // 31: expect_bytes(full[s], at[s], bt[s])
                    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" :: "r"(full + s * 8), "r"(40960u) : "memory");
                    // 32: tma_load(at[s], a[row:+64, j * BK:+BK], full[s])
                    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" :: "r"(at + s * 8192), "l"(&cake_map_a), "r"(full + s * 8), "r"(static_cast<int>(j * BK)), "r"(static_cast<int>(row)) : "memory");
                    // 33: tma_load(bt[s], b[col:+BN, j * BK:+BK], full[s])
                    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" :: "r"(bt + s * 32768), "l"(&cake_map_b), "r"(full + s * 8), "r"(static_cast<int>(j * BK)), "r"(static_cast<int>(col)) : "memory");
                    // 34: it += 1
                    it = it + 1;
                }
            }
        }
        __syncwarp();
    // 35: with role("mma", warpgroups=2):
    } else {
        // role mma: warps 4 to 11
        [[maybe_unused]] const int cake_rank = cake_warp - 4;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        // 36: setmaxnreg_inc(232)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;" :: : "memory");
        // 37: it = warpgroup * tiles_k
        int it = cake_rank / 4 * tiles_k;
        // 38: round = 0
        int round = 0;
        // 39: for tile in range(block + warpgroup * blocks, tiles_m * tiles_n, 2 * blocks):
        for (int tile = cake_block + cake_rank / 4 * cake_blocks; tile < tiles_m * tiles_n; tile += 2 * cake_blocks) {
            // 40: row = tile % tiles_m * 64
            int row = tile % tiles_m * 64;
            // 41: col = tile // tiles_m * BN
            int col = tile / tiles_m * BN;
            // 42: acc = zeros(f32, 64, BN, layout="wgmma")
            float acc[128];
            #pragma unroll
            for (int i_ = 0; i_ < 128; ++i_) {
                acc[i_] = 0.0f;
            }
            // 43: with task("turn"):
            // task turn
            // 44: wait(turn[warpgroup], round & 1 ^ 1 - warpgroup)
            cake_wait(turn + cake_rank / 4 * 8, round & 1 ^ 1 - cake_rank / 4);
            // 45: round += 1
            round = round + 1;
            // 46: with task("main"):
            // task main
            // 47: for j in range(tiles_k):
            for (int j = 0; j < tiles_k; ++j) {
                // 48: s, parity = ring(it, STAGES)
                int s = it % STAGES;
                int parity = it / STAGES & 1;
                // 49: wait(full[s], parity)
                cake_wait(full + s * 8, parity);
                // 50: wgmma_fence()
                asm volatile("wgmma.fence.sync.aligned;" :: : "memory");
                // 51: acc = wgmma(at[s], bt[s], acc)
                const unsigned long long cake_descriptor_1 = cake_descriptor_128(at + s * 8192);
                const unsigned long long cake_descriptor_2 = cake_descriptor_128(bt + s * 32768);
                cake_wgmma_m64n256k16_bf16(acc, cake_descriptor_1 + 0, cake_descriptor_2 + 0);
                cake_wgmma_m64n256k16_bf16(acc, cake_descriptor_1 + 2, cake_descriptor_2 + 2);
                cake_wgmma_m64n256k16_bf16(acc, cake_descriptor_1 + 4, cake_descriptor_2 + 4);
                cake_wgmma_m64n256k16_bf16(acc, cake_descriptor_1 + 6, cake_descriptor_2 + 6);
                // 52: wgmma_commit()
                asm volatile("wgmma.commit_group.sync.aligned;" :: : "memory");
                // 53: wgmma_wait(0)
                asm volatile("wgmma.wait_group.sync.aligned 0;" :: : "memory");
                cake_keep_128(acc);
                // 54: arrive(free[s])
                __syncwarp();
                if (cake_lane == 0) {
                    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" :: "r"(free + s * 8) : "memory");
                }
                // 55: it += 1
                it = it + 1;
            }
            // 56: it += tiles_k
            it = it + tiles_k;
            // 57: arrive(turn[1 - warpgroup])
            __syncwarp();
            if (cake_lane == 0) {
                asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" :: "r"(turn + (1 - cake_rank / 4) * 8) : "memory");
            }
            // 58: with task("epilogue"):
            // task epilogue
            // 59: with one_thread("warpgroup"):
            __syncwarp();
            if (cake_rank % 4 == 0 && cake_elect()) {
                // 60: bulk_wait_read(0)
                asm volatile("cp.async.bulk.wait_group.read 0;" :: : "memory");
            }
            __syncwarp();
            // 61: named_sync(1 + warpgroup, warps=4)
            asm volatile("bar.sync %0, 128;" :: "r"(static_cast<unsigned>(1 + cake_rank / 4)) : "memory");
            // 62: stmatrix(ct[warpgroup], cast(acc, bf16))
            unsigned cake_t_3[64];
            #pragma unroll
            for (int i_ = 0; i_ < 64; ++i_) {
                cake_t_3[i_] = cake_pack_bf16(acc[i_ * 2], acc[i_ * 2 + 1]);
            }
            __syncwarp();
            const int cake_row_4 = cake_rank % 4 * 16 + cake_lane % 16, cake_half_5 = cake_lane / 16 * 8;
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + cake_swizzle_128(cake_row_4 * 128 + cake_half_5 * 2)), "r"(cake_t_3[0]), "r"(cake_t_3[1]), "r"(cake_t_3[2]), "r"(cake_t_3[3]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 16) * 2)), "r"(cake_t_3[4]), "r"(cake_t_3[5]), "r"(cake_t_3[6]), "r"(cake_t_3[7]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 32) * 2)), "r"(cake_t_3[8]), "r"(cake_t_3[9]), "r"(cake_t_3[10]), "r"(cake_t_3[11]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 48) * 2)), "r"(cake_t_3[12]), "r"(cake_t_3[13]), "r"(cake_t_3[14]), "r"(cake_t_3[15]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + 8192 + cake_swizzle_128(cake_row_4 * 128 + cake_half_5 * 2)), "r"(cake_t_3[16]), "r"(cake_t_3[17]), "r"(cake_t_3[18]), "r"(cake_t_3[19]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + 8192 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 16) * 2)), "r"(cake_t_3[20]), "r"(cake_t_3[21]), "r"(cake_t_3[22]), "r"(cake_t_3[23]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + 8192 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 32) * 2)), "r"(cake_t_3[24]), "r"(cake_t_3[25]), "r"(cake_t_3[26]), "r"(cake_t_3[27]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + 8192 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 48) * 2)), "r"(cake_t_3[28]), "r"(cake_t_3[29]), "r"(cake_t_3[30]), "r"(cake_t_3[31]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + 16384 + cake_swizzle_128(cake_row_4 * 128 + cake_half_5 * 2)), "r"(cake_t_3[32]), "r"(cake_t_3[33]), "r"(cake_t_3[34]), "r"(cake_t_3[35]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + 16384 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 16) * 2)), "r"(cake_t_3[36]), "r"(cake_t_3[37]), "r"(cake_t_3[38]), "r"(cake_t_3[39]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + 16384 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 32) * 2)), "r"(cake_t_3[40]), "r"(cake_t_3[41]), "r"(cake_t_3[42]), "r"(cake_t_3[43]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + 16384 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 48) * 2)), "r"(cake_t_3[44]), "r"(cake_t_3[45]), "r"(cake_t_3[46]), "r"(cake_t_3[47]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + 24576 + cake_swizzle_128(cake_row_4 * 128 + cake_half_5 * 2)), "r"(cake_t_3[48]), "r"(cake_t_3[49]), "r"(cake_t_3[50]), "r"(cake_t_3[51]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + 24576 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 16) * 2)), "r"(cake_t_3[52]), "r"(cake_t_3[53]), "r"(cake_t_3[54]), "r"(cake_t_3[55]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + 24576 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 32) * 2)), "r"(cake_t_3[56]), "r"(cake_t_3[57]), "r"(cake_t_3[58]), "r"(cake_t_3[59]) : "memory");
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" :: "r"(ct + cake_rank / 4 * 32768 + 24576 + cake_swizzle_128(cake_row_4 * 128 + (cake_half_5 + 48) * 2)), "r"(cake_t_3[60]), "r"(cake_t_3[61]), "r"(cake_t_3[62]), "r"(cake_t_3[63]) : "memory");
            __syncwarp();
            // 63: fence_async()
            asm volatile("fence.proxy.async.shared::cta;" :: : "memory");
            // 64: named_sync(1 + warpgroup, warps=4)
            asm volatile("bar.sync %0, 128;" :: "r"(static_cast<unsigned>(1 + cake_rank / 4)) : "memory");
            // 65: with one_thread("warpgroup"):
            __syncwarp();
            if (cake_rank % 4 == 0 && cake_elect()) {
                // 66: for p in range(BN // 64):
                for (int p = 0; p < BN / 64; ++p) {
                    // 67: tma_store(c[row:+64, col + p * 64:+64], ct[warpgroup, p])
                    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" :: "l"(&cake_map_c), "r"(ct + cake_rank / 4 * 32768 + p * 8192), "r"(static_cast<int>(col + p * 64)), "r"(static_cast<int>(row)) : "memory");
                }
                // 68: bulk_commit()
                asm volatile("cp.async.bulk.commit_group;" :: : "memory");
            }
            __syncwarp();
        }
        // 69: with one_thread("warpgroup"):
        __syncwarp();
        if (cake_rank % 4 == 0 && cake_elect()) {
            // 70: bulk_wait_read(0)
            asm volatile("cp.async.bulk.wait_group.read 0;" :: : "memory");
        }
        __syncwarp();
    }
}
