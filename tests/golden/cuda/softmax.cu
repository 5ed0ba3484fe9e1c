// softmax M=1000 N=1000 for sm_80

__device__ __forceinline__ float cake_bf16_to_float(unsigned pair, int high) {
    return __uint_as_float(high ? pair & 0xffff0000u : pair << 16);
}

__device__ __forceinline__ void cake_shared_store_4(unsigned address, unsigned value) {
    asm volatile("st.shared.b32 [%0], %1;" :: "r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ unsigned cake_shared_load_4(unsigned address) {
    unsigned value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

__device__ __forceinline__ float cake_exp2(float x0) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x0));
    return y;
}

__device__ __forceinline__ float cake_div(float x0, float x1) {
    float y;
    asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(x0), "f"(x1));
    return y;
}

__device__ __forceinline__ unsigned cake_pack_bf16(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

extern "C" __global__ void __launch_bounds__(256, 1)
softmax_kernel(
    const unsigned short* __restrict__ x,
    unsigned short* __restrict__ y) {
    extern __shared__ __align__(1024) unsigned char cake_shared[];
    [[maybe_unused]] const unsigned cake_base = static_cast<unsigned>(__cvta_generic_to_shared(cake_shared));
    [[maybe_unused]] const int cake_block = static_cast<int>(blockIdx.x);
    [[maybe_unused]] const int cake_lane = static_cast<int>(threadIdx.x) % 32;
    [[maybe_unused]] const int cake_warp =
        __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    const unsigned peaks = cake_base;
    const unsigned sums = cake_base + 128;
    // 8: with role("row", warps=WARPS):
    {
        // role row: warps 0 to 7
        [[maybe_unused]] const int cake_rank = cake_warp;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        // 9: with task("load"):
        // task load
        // 10: v = cast(load(x[block, :], vector=VEC, fill=-inf), f32)
        float v[8];
        unsigned cake_t_1[4];
        #pragma unroll
        for (int c_ = 0; c_ < 1; ++c_) {
            const int at_ = c_ * 2048 + cake_thread * 8;
            if (at_ < 1000) {
                const uint4 v_ = *reinterpret_cast<const uint4*>(x + cake_block * 1000 + at_);
                cake_t_1[c_ * 4 + 0] = v_.x;
                cake_t_1[c_ * 4 + 1] = v_.y;
                cake_t_1[c_ * 4 + 2] = v_.z;
                cake_t_1[c_ * 4 + 3] = v_.w;
            } else {
                cake_t_1[c_ * 4 + 0] = 4286644096u;
                cake_t_1[c_ * 4 + 1] = 4286644096u;
                cake_t_1[c_ * 4 + 2] = 4286644096u;
                cake_t_1[c_ * 4 + 3] = 4286644096u;
            }
        }
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            v[i_] = cake_bf16_to_float(cake_t_1[(i_) / 2], (i_) & 1);
        }
        // 11: with task("peak"):
        // task peak
        // 12: store(peaks[warp], warp_max(v))
        float cake_t_2[1];
        cake_t_2[0] = v[0];
        #pragma unroll
        for (int i_ = 1; i_ < 8; ++i_) cake_t_2[0] = fmaxf(cake_t_2[0], v[i_]);
        #pragma unroll
        for (int m_ = 16; m_ > 0; m_ /= 2) cake_t_2[0] = fmaxf(cake_t_2[0], __shfl_xor_sync(0xffffffffu, cake_t_2[0], m_));
        __syncwarp();
        if (cake_lane == 0) cake_shared_store_4(peaks + cake_rank * 4, __float_as_uint(cake_t_2[0 + 0]));
        __syncwarp();
        // 13: cta_sync()
        __syncthreads();
        // 14: peak = reduce_max(load(peaks[:]))
        float peak[1];
        float cake_t_3[8];
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            const unsigned v_ = cake_shared_load_4(peaks + i_ * 4);
            cake_t_3[i_] = __uint_as_float(v_);
        }
        peak[0] = __int_as_float(0xff800000);
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            peak[0] = fmaxf(peak[0], cake_t_3[i_]);
        }
        // 15: with task("sum"):
        // task sum
        // 16: e = exp2((v - peak) * 1.4426950408889634)
        float e[8];
        float cake_t_4[8];
        float cake_t_5[8];
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            cake_t_5[i_] = v[i_] - peak[0];
        }
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            cake_t_4[i_] = cake_t_5[i_] * static_cast<float>(1.4426950408889634f);
        }
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            e[i_] = cake_exp2(cake_t_4[i_]);
        }
        // 17: store(sums[warp], warp_sum(e))
        float cake_t_6[1];
        cake_t_6[0] = e[0];
        #pragma unroll
        for (int i_ = 1; i_ < 8; ++i_) cake_t_6[0] = cake_t_6[0] + e[i_];
        #pragma unroll
        for (int m_ = 16; m_ > 0; m_ /= 2) cake_t_6[0] = cake_t_6[0] + __shfl_xor_sync(0xffffffffu, cake_t_6[0], m_);
        __syncwarp();
        if (cake_lane == 0) cake_shared_store_4(sums + cake_rank * 4, __float_as_uint(cake_t_6[0 + 0]));
        __syncwarp();
        // 18: cta_sync()
        __syncthreads();
        // 19: total = reduce_sum(load(sums[:]))
        float total[1];
        float cake_t_7[8];
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            const unsigned v_ = cake_shared_load_4(sums + i_ * 4);
            cake_t_7[i_] = __uint_as_float(v_);
        }
        total[0] = 0.0f;
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            total[0] = total[0] + cake_t_7[i_];
        }
        // 20: with task("store"):
        // task store
        // 21: store(y[block, :], cast(e / total, bf16), vector=VEC)
        unsigned cake_t_8[4];
        float cake_t_9[8];
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            cake_t_9[i_] = cake_div(e[i_], total[0]);
        }
        #pragma unroll
        for (int i_ = 0; i_ < 4; ++i_) {
            cake_t_8[i_] = cake_pack_bf16(cake_t_9[i_ * 2], cake_t_9[i_ * 2 + 1]);
        }
        #pragma unroll
        for (int c_ = 0; c_ < 1; ++c_) {
            const int at_ = c_ * 2048 + cake_thread * 8;
            if (at_ < 1000) *reinterpret_cast<uint4*>(y + cake_block * 1000 + at_) = make_uint4(cake_t_8[c_ * 4 + 0], cake_t_8[c_ * 4 + 1], cake_t_8[c_ * 4 + 2], cake_t_8[c_ * 4 + 3]);
        }
    }
}
