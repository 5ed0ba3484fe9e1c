// gemm M=4095 N=1000 K=776 for sm_100a

struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };

__device__ __forceinline__ bool cake_elect() {
    unsigned one;
    asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}" : "=r"(one));
    return one != 0;
}

__device__ __forceinline__ unsigned cake_tensor_base(unsigned slot) {
    unsigned base;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(base) : "r"(slot) : "memory");
    return base;
}

__device__ __forceinline__ void cake_wait(unsigned barrier, unsigned parity) {
    asm volatile("{\n\t.reg .pred done;\n"
        "again:\n\t"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n\t"
        "@!done bra again;\n\t}"
        :: "r"(barrier), "r"(parity) : "memory");
}

__device__ __forceinline__ unsigned cake_pack_bf16(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ void cake_shared_store_16(unsigned address, uint4 value) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" :: "r"(address), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) : "memory");
}

__device__ __forceinline__ unsigned cake_swizzle_128(unsigned offset) {
    return offset ^ ((offset >> 7 & 7) << 4);
}

__device__ __forceinline__ void cake_tcgen05_mma_f16(
    unsigned d, unsigned long long a, unsigned long long b, unsigned word, unsigned more) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %4, 0;\n\t"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n\t}"
        :: "r"(d), "l"(a), "l"(b), "r"(word), "r"(more) : "memory");
}

extern "C" __global__ void __launch_bounds__(192, 1)
gemm_kernel(
    const __grid_constant__ CUtensorMap cake_map_c,
    const __grid_constant__ CUtensorMap cake_map_a,
    const __grid_constant__ CUtensorMap cake_map_b) {
    constexpr int BN = 128;
    constexpr int BK = 64;
    constexpr int STAGES = 4;
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
    const unsigned done = cake_base + 163904;
    const unsigned empty = cake_base + 163920;
    const unsigned cake_tensor_slot = cake_base + 163936;
    // 17: with one_thread():
    __syncwarp();
    if (cake_warp == 0 && cake_elect()) {
        // 18: mbarrier_init(full)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full + 8) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full + 16) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full + 24) : "memory");
        // 19: mbarrier_init(free)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(free) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(free + 8) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(free + 16) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(free + 24) : "memory");
        // 20: mbarrier_init(done)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(done) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(done + 8) : "memory");
        // 21: mbarrier_init(empty)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" :: "r"(empty) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" :: "r"(empty + 8) : "memory");
        // 22: fence_mbarrier_init()
        asm volatile("fence.mbarrier_init.release.cluster;" :: : "memory");
    }
    __syncwarp();
    // 23: if warp == 0:
    if (cake_warp == 0) {
        // 24: tcgen05_alloc(2 * BN)
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 256;" :: "r"(cake_tensor_slot) : "memory");
        // 25: tcgen05_relinquish()
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" :: : "memory");
    }
    // 26: cta_sync()
    __syncthreads();
    // 27: with role("epilogue", warpgroups=1):
    if (cake_warp < 4) {
        // role epilogue: warps 0 to 3
        [[maybe_unused]] const int cake_rank = cake_warp;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        [[maybe_unused]] const unsigned cake_tensor = cake_tensor_base(cake_tensor_slot);
        // 28: turn = 0
        int turn = 0;
        // 29: for tile in range(block, tiles_m * tiles_n, blocks):
        for (int tile = cake_block; tile < tiles_m * tiles_n; tile += cake_blocks) {
            // 30: row = tile % tiles_m * 128
            int row = tile % tiles_m * 128;
            // 31: col = tile // tiles_m * BN
            int col = tile / tiles_m * BN;
            // 32: s, parity = ring(turn, 2)
            int s = turn % 2;
            int parity = turn / 2 & 1;
            // 33: with task("drain"):
            // task drain
            // 34: with one_thread():
            __syncwarp();
            if (cake_rank == 0 && cake_elect()) {
                // 35: bulk_wait_read(0)
                asm volatile("cp.async.bulk.wait_group.read 0;" :: : "memory");
            }
            __syncwarp();
            // 36: named_sync(1, warps=4)
            asm volatile("bar.sync %0, 128;" :: "r"(static_cast<unsigned>(1)) : "memory");
            // 37: wait(done[s], parity)
            cake_wait(done + s * 8, parity);
            // 38: tcgen05_fence_after()
            asm volatile("tcgen05.fence::after_thread_sync;" :: : "memory");
            // 39: for p in unroll(BN // 64):
            #pragma unroll
            for (int p = 0; p < BN / 64; ++p) {
                // 40: v = tcgen05_ld(acc[s, :, p * 64:+64])
                float v[64];
                asm volatile("tcgen05.ld.sync.aligned.32x32b.x64.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, [%64];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]), "=f"(v[6]), "=f"(v[7]), "=f"(v[8]), "=f"(v[9]), "=f"(v[10]), "=f"(v[11]), "=f"(v[12]), "=f"(v[13]), "=f"(v[14]), "=f"(v[15]), "=f"(v[16]), "=f"(v[17]), "=f"(v[18]), "=f"(v[19]), "=f"(v[20]), "=f"(v[21]), "=f"(v[22]), "=f"(v[23]), "=f"(v[24]), "=f"(v[25]), "=f"(v[26]), "=f"(v[27]), "=f"(v[28]), "=f"(v[29]), "=f"(v[30]), "=f"(v[31]), "=f"(v[32]), "=f"(v[33]), "=f"(v[34]), "=f"(v[35]), "=f"(v[36]), "=f"(v[37]), "=f"(v[38]), "=f"(v[39]), "=f"(v[40]), "=f"(v[41]), "=f"(v[42]), "=f"(v[43]), "=f"(v[44]), "=f"(v[45]), "=f"(v[46]), "=f"(v[47]), "=f"(v[48]), "=f"(v[49]), "=f"(v[50]), "=f"(v[51]), "=f"(v[52]), "=f"(v[53]), "=f"(v[54]), "=f"(v[55]), "=f"(v[56]), "=f"(v[57]), "=f"(v[58]), "=f"(v[59]), "=f"(v[60]), "=f"(v[61]), "=f"(v[62]), "=f"(v[63]) : "r"(cake_tensor + s * 128 + p * 64 + (cake_rank % 4 << 21)) : "memory");
                // 41: tcgen05_wait_ld()
                asm volatile("tcgen05.wait::ld.sync.aligned;" :: : "memory");
                // 42: store(ct[p], cast(v, bf16), vector=8)
                unsigned cake_t_1[32];
                #pragma unroll
                for (int i_ = 0; i_ < 32; ++i_) {
                    cake_t_1[i_] = cake_pack_bf16(v[i_ * 2], v[i_ * 2 + 1]);
                }
                __syncwarp();
                {
                    const int r_ = cake_rank % 4 * 32 + cake_lane;
                    #pragma unroll
                    for (int c_ = 0; c_ < 8; ++c_) {
                        cake_shared_store_16(ct + p * 16384 + cake_swizzle_128(r_ * 128 + c_ * 8 * 2), make_uint4(cake_t_1[c_ * 4 + 0], cake_t_1[c_ * 4 + 1], cake_t_1[c_ * 4 + 2], cake_t_1[c_ * 4 + 3]));
                    }
                }
                __syncwarp();
            }
            // 43: tcgen05_fence_before()
            asm volatile("tcgen05.fence::before_thread_sync;" :: : "memory");
            // 44: arrive(empty[s])
            __syncwarp();
            if (cake_lane == 0) {
                asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" :: "r"(empty + s * 8) : "memory");
            }
            // 45: with task("store"):
            // task store
            // 46: fence_async()
            asm volatile("fence.proxy.async.shared::cta;" :: : "memory");
            // 47: named_sync(1, warps=4)
            asm volatile("bar.sync %0, 128;" :: "r"(static_cast<unsigned>(1)) : "memory");
            // 48: with one_thread():
            __syncwarp();
            if (cake_rank == 0 && cake_elect()) {
                // 49: for p in range(BN // 64):
                for (int p = 0; p < BN / 64; ++p) {
                    // 50: tma_store(c[row:+128, col + p * 64:+64], ct[p])
                    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" :: "l"(&cake_map_c), "r"(ct + p * 16384), "r"(static_cast<int>(col + p * 64)), "r"(static_cast<int>(row)) : "memory");
                }
                // 51: bulk_commit()
                asm volatile("cp.async.bulk.commit_group;" :: : "memory");
            }
            __syncwarp();
            // 52: turn += 1
            turn = turn + 1;
        }
        // 53: with one_thread():
        __syncwarp();
        if (cake_rank == 0 && cake_elect()) {
            // 54: bulk_wait_read(0)
            asm volatile("cp.async.bulk.wait_group.read 0;" :: : "memory");
        }
        __syncwarp();
    // 55: with role("load", warps=1):
    } else if (cake_warp < 5) {
        // role load: warps 4 to 4
        [[maybe_unused]] const int cake_rank = cake_warp - 4;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        [[maybe_unused]] const unsigned cake_tensor = cake_tensor_base(cake_tensor_slot);
        // 56: with one_thread():
        __syncwarp();
        if (cake_rank == 0 && cake_elect()) {
            // 57: it = 0
            int it = 0;
            // 58: for tile in range(block, tiles_m * tiles_n, blocks):
            for (int tile = cake_block; tile < tiles_m * tiles_n; tile += cake_blocks) {
                // 59: row = tile % tiles_m * 128
                int row = tile % tiles_m * 128;
                // 60: col = tile // tiles_m * BN
                int col = tile / tiles_m * BN;
                // 61: for j in range(tiles_k):
                for (int j = 0; j < tiles_k; ++j) {
                    // 62: s, parity = ring(it, STAGES)
                    int s = it % STAGES;
                    int parity = it / STAGES & 1;
                    // 63: wait(free[s], parity ^ 1)
                    cake_wait(free + s * 8, parity ^ 1);
                    // 64: expect_bytes(full[s], at[s], bt[s])
                    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" :: "r"(full + s * 8), "r"(32768u) : "memory");
                    // 65: tma_load(at[s], a[row:+128, j * BK:+BK], full[s])
                    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" :: "r"(at + s * 16384), "l"(&cake_map_a), "r"(full + s * 8), "r"(static_cast<int>(j * BK)), "r"(static_cast<int>(row)) : "memory");
                    // 66: tma_load(bt[s], b[col:+BN, j * BK:+BK], full[s])
                    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" :: "r"(bt + s * 16384), "l"(&cake_map_b), "r"(full + s * 8), "r"(static_cast<int>(j * BK)), "r"(static_cast<int>(col)) : "memory");
                    // 67: it += 1
                    it = it + 1;
                }
            }
        }
        __syncwarp();
    // 68: with role("mma", warps=1):
    } else {
        // role mma: warps 5 to 5
        [[maybe_unused]] const int cake_rank = cake_warp - 5;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        [[maybe_unused]] const unsigned cake_tensor = cake_tensor_base(cake_tensor_slot);
        // 69: with one_thread():
        __syncwarp();
        if (cake_rank == 0 && cake_elect()) {
            // 70: it = 0
            int it = 0;
            // 71: turn = 0
            int turn = 0;
            // 72: for tile in range(block, tiles_m * tiles_n, blocks):
            for (int tile = cake_block; tile < tiles_m * tiles_n; tile += cake_blocks) {
                // 73: s, parity = ring(turn, 2)
                int s = turn % 2;
                int parity = turn / 2 & 1;
                // 74: wait(empty[s], parity ^ 1)
                cake_wait(empty + s * 8, parity ^ 1);
                // 75: tcgen05_fence_after()
                asm volatile("tcgen05.fence::after_thread_sync;" :: : "memory");
                // 76: for j in range(tiles_k):
                for (int j = 0; j < tiles_k; ++j) {
                    // 77: r, phase = ring(it, STAGES)
                    int r = it % STAGES;
                    int phase = it / STAGES & 1;
                    // 78: wait(full[r], phase)
                    cake_wait(full + r * 8, phase);
                    // 79: tcgen05_mma(acc[s], at[r], bt[r], accumulate=j > 0)
                    const unsigned long long cake_matrix_2 = 0x4000404000010000ULL | ((at + r * 16384) & 0x3ffffu) >> 4;
                    const unsigned long long cake_matrix_3 = 0x4000404000010000ULL | ((bt + r * 16384) & 0x3ffffu) >> 4;
                    const unsigned cake_more_4 = j > 0;
                    cake_tcgen05_mma_f16(cake_tensor + s * 128, cake_matrix_2, cake_matrix_3, 0x8200490u, cake_more_4);
                    cake_tcgen05_mma_f16(cake_tensor + s * 128, cake_matrix_2 + 2, cake_matrix_3 + 2, 0x8200490u, 1u);
                    cake_tcgen05_mma_f16(cake_tensor + s * 128, cake_matrix_2 + 4, cake_matrix_3 + 4, 0x8200490u, 1u);
                    cake_tcgen05_mma_f16(cake_tensor + s * 128, cake_matrix_2 + 6, cake_matrix_3 + 6, 0x8200490u, 1u);
                    // 80: tcgen05_commit(free[r])
                    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" :: "r"(free + r * 8) : "memory");
                    // 81: it += 1
                    it = it + 1;
                }
                // 82: tcgen05_commit(done[s])
                asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" :: "r"(done + s * 8) : "memory");
                // 83: turn += 1
                turn = turn + 1;
            }
        }
        __syncwarp();
    }
    // 84: cta_sync()
    __syncthreads();
    // 85: if warp == 0:
    if (cake_warp == 0) {
        // 86: tcgen05_dealloc(2 * BN)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 256;" :: "r"(cake_tensor_base(cake_tensor_slot)) : "memory");
    }
}
