// layernorm M=1000 N=1000 for sm_80

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

__device__ __forceinline__ float cake_div(float x0, float x1) {
    float y;
    asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(x0), "f"(x1));
    return y;
}

__device__ __forceinline__ float cake_rsqrt(float x0) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x0));
    return y;
}

__device__ __forceinline__ unsigned cake_pack_bf16(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

extern "C" __global__ void __launch_bounds__(256, 1)
layernorm_kernel(
    const unsigned short* __restrict__ x,
    const unsigned short* __restrict__ w,
    const unsigned short* __restrict__ b,
    unsigned short* __restrict__ y) {
    constexpr float EPS = 1e-05f;
    constexpr int N = 1000;
    extern __shared__ __align__(1024) unsigned char cake_shared[];
    [[maybe_unused]] const unsigned cake_base = static_cast<unsigned>(__cvta_generic_to_shared(cake_shared));
    [[maybe_unused]] const int cake_block = static_cast<int>(blockIdx.x);
    [[maybe_unused]] const int cake_lane = static_cast<int>(threadIdx.x) % 32;
    [[maybe_unused]] const int cake_warp =
        __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    const unsigned sums = cake_base;
    const unsigned squares = cake_base + 128;
    // 8: with role("row", warps=WARPS):
    {
        // role row: warps 0 to 7
        [[maybe_unused]] const int cake_rank = cake_warp;
        [[maybe_unused]] const int cake_thread = cake_rank * 32 + cake_lane;
        // 9: with task("load"):
        // task load
        // 10: v = cast(load(x[block, :], vector=VEC, fill=0.0), f32)
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
                cake_t_1[c_ * 4 + 0] = 0u;
                cake_t_1[c_ * 4 + 1] = 0u;
                cake_t_1[c_ * 4 + 2] = 0u;
                cake_t_1[c_ * 4 + 3] = 0u;
            }
        }
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            v[i_] = cake_bf16_to_float(cake_t_1[(i_) / 2], (i_) & 1);
        }
        // 11: g = cast(load(w[:], vector=VEC, fill=0.0), f32)
        float g[8];
        unsigned cake_t_2[4];
        #pragma unroll
        for (int c_ = 0; c_ < 1; ++c_) {
            const int at_ = c_ * 2048 + cake_thread * 8;
            if (at_ < 1000) {
                const uint4 v_ = *reinterpret_cast<const uint4*>(w + at_);
                cake_t_2[c_ * 4 + 0] = v_.x;
                cake_t_2[c_ * 4 + 1] = v_.y;
                cake_t_2[c_ * 4 + 2] = v_.z;
                cake_t_2[c_ * 4 + 3] = v_.w;
            } else {
                cake_t_2[c_ * 4 + 0] = 0u;
                cake_t_2[c_ * 4 + 1] = 0u;
                cake_t_2[c_ * 4 + 2] = 0u;
                cake_t_2[c_ * 4 + 3] = 0u;
            }
        }
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            g[i_] = cake_bf16_to_float(cake_t_2[(i_) / 2], (i_) & 1);
        }
        // 12: h = cast(load(b[:], vector=VEC, fill=0.0), f32)
        float h[8];
        unsigned cake_t_3[4];
        #pragma unroll
        for (int c_ = 0; c_ < 1; ++c_) {
            const int at_ = c_ * 2048 + cake_thread * 8;
            if (at_ < 1000) {
                const uint4 v_ = *reinterpret_cast<const uint4*>(b + at_);
                cake_t_3[c_ * 4 + 0] = v_.x;
                cake_t_3[c_ * 4 + 1] = v_.y;
                cake_t_3[c_ * 4 + 2] = v_.z;
                cake_t_3[c_ * 4 + 3] = v_.w;
            } else {
                cake_t_3[c_ * 4 + 0] = 0u;
                cake_t_3[c_ * 4 + 1] = 0u;
                cake_t_3[c_ * 4 + 2] = 0u;
                cake_t_3[c_ * 4 + 3] = 0u;
            }
        }
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            h[i_] = cake_bf16_to_float(cake_t_3[(i_) / 2], (i_) & 1);
        }
        // 13: with task("mean"):
        // task mean
        // 14: store(sums[warp], warp_sum(v))
        float cake_t_4[1];
        cake_t_4[0] = v[0];
        #pragma unroll
        for (int i_ = 1; i_ < 8; ++i_) cake_t_4[0] = cake_t_4[0] + v[i_];
        #pragma unroll
        for (int m_ = 16; m_ > 0; m_ /= 2) cake_t_4[0] = cake_t_4[0] + __shfl_xor_sync(0xffffffffu, cake_t_4[0], m_);
        __syncwarp();
        if (cake_lane == 0) cake_shared_store_4(sums + cake_rank * 4, __float_as_uint(cake_t_4[0 + 0]));
        __syncwarp();
        // 15: cta_sync()
        __syncthreads();
        // 16: d = select(iota(v) < N, v - reduce_sum(load(sums[:])) / N, 0.0)
        float d[8];
        bool cake_t_5[8];
        int cake_t_6[8];
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            cake_t_6[i_] = i_ / 8 * 2048 + cake_thread * 8 + i_ % 8;
        }
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            cake_t_5[i_] = cake_t_6[i_] < static_cast<int>(N);
        }
        float cake_t_7[8];
        float cake_t_8[1];
        float cake_t_9[1];
        float cake_t_10[8];
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            const unsigned v_ = cake_shared_load_4(sums + i_ * 4);
            cake_t_10[i_] = __uint_as_float(v_);
        }
        cake_t_9[0] = 0.0f;
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            cake_t_9[0] = cake_t_9[0] + cake_t_10[i_];
        }
        #pragma unroll
        for (int i_ = 0; i_ < 1; ++i_) {
            cake_t_8[i_] = cake_div(cake_t_9[i_], static_cast<float>(N));
        }
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            cake_t_7[i_] = v[i_] - cake_t_8[0];
        }
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            d[i_] = cake_t_5[i_] ? cake_t_7[i_] : static_cast<float>(0.0f);
        }
        // 17: with task("deviation"):
        // task deviation
        // 18: store(squares[warp], warp_sum(d * d))
        float cake_t_11[1];
        float cake_t_12[8];
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            cake_t_12[i_] = d[i_] * d[i_];
        }
        cake_t_11[0] = cake_t_12[0];
        #pragma unroll
        for (int i_ = 1; i_ < 8; ++i_) cake_t_11[0] = cake_t_11[0] + cake_t_12[i_];
        #pragma unroll
        for (int m_ = 16; m_ > 0; m_ /= 2) cake_t_11[0] = cake_t_11[0] + __shfl_xor_sync(0xffffffffu, cake_t_11[0], m_);
        __syncwarp();
        if (cake_lane == 0) cake_shared_store_4(squares + cake_rank * 4, __float_as_uint(cake_t_11[0 + 0]));
        __syncwarp();
        // 19: cta_sync()
        __syncthreads();
        // 20: scale = rsqrt(reduce_sum(load(squares[:])) / N + EPS)
        float scale[1];
        float cake_t_13[1];
        float cake_t_14[1];
        float cake_t_15[1];
        float cake_t_16[8];
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            const unsigned v_ = cake_shared_load_4(squares + i_ * 4);
            cake_t_16[i_] = __uint_as_float(v_);
        }
        cake_t_15[0] = 0.0f;
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            cake_t_15[0] = cake_t_15[0] + cake_t_16[i_];
        }
        #pragma unroll
        for (int i_ = 0; i_ < 1; ++i_) {
            cake_t_14[i_] = cake_div(cake_t_15[i_], static_cast<float>(N));
        }
        #pragma unroll
        for (int i_ = 0; i_ < 1; ++i_) {
            cake_t_13[i_] = cake_t_14[i_] + static_cast<float>(EPS);
        }
        #pragma unroll
        for (int i_ = 0; i_ < 1; ++i_) {
            scale[i_] = cake_rsqrt(cake_t_13[i_]);
        }
        // 21: with task("store"):
        // task store
        // 22: store(y[block, :], cast(d * scale * g + h, bf16), vector=VEC)
        unsigned cake_t_17[4];
        float cake_t_18[8];
        float cake_t_19[8];
        float cake_t_20[8];
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            cake_t_20[i_] = d[i_] * scale[0];
        }
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            cake_t_19[i_] = cake_t_20[i_] * g[i_];
        }
        #pragma unroll
        for (int i_ = 0; i_ < 8; ++i_) {
            cake_t_18[i_] = cake_t_19[i_] + h[i_];
        }
        #pragma unroll
        for (int i_ = 0; i_ < 4; ++i_) {
            cake_t_17[i_] = cake_pack_bf16(cake_t_18[i_ * 2], cake_t_18[i_ * 2 + 1]);
        }
        #pragma unroll
        for (int c_ = 0; c_ < 1; ++c_) {
            const int at_ = c_ * 2048 + cake_thread * 8;
            if (at_ < 1000) *reinterpret_cast<uint4*>(y + cake_block * 1000 + at_) = make_uint4(cake_t_17[c_ * 4 + 0], cake_t_17[c_ * 4 + 1], cake_t_17[c_ * 4 + 2], cake_t_17[c_ * 4 + 3]);
        }
    }
}
