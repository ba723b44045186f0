// One kernel text for two compilers. nvcc gets thin wrappers of PTX; g++ gets the emulator
// (emulator.h), which computes the same and watches. Kernels touch shared memory by byte offsets
// into the block's dynamic shared memory, never by pointers, and global memory through ldg,
// load_coherent, stg and cp_async.
//
// SIMT_BACKEND names the compiler's side (device, emulated): an inline namespace for kernels of
// which one program holds both.
//
//   kernel<<<...>>> is   template <class T> SIMT_KERNEL void SIMT_BOUNDS(threads, blocks)
//   kernel(Args)
#pragma once

#include <cstdint>

namespace curvq::simt {

struct alignas(16) U32x4 {
  uint32_t x, y, z, w;
};
struct alignas(8) U32x2 {
  uint32_t x, y;
};
struct alignas(16) F32x4 {
  float x, y, z, w;
};

}  // namespace curvq::simt

#ifndef __CUDACC__

#include "kernels/cuda/simt/host_wrappers.h"
#define SIMT_BACKEND emulated
#define SIMT_UNROLL
#define SIMT_NO_UNROLL
#define SIMT_KERNEL
#define SIMT_DEVICE inline
#define SIMT_BOUNDS(threads, blocks)

#else

#include <cuda_fp8.h>

#define SIMT_BACKEND device
#define SIMT_UNROLL _Pragma("unroll")
#define SIMT_NO_UNROLL _Pragma("unroll 1")
#define SIMT_KERNEL __global__
#define SIMT_DEVICE __device__ __forceinline__
#define SIMT_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)

namespace curvq::simt {

extern __shared__ __align__(128) unsigned char shared_memory[];

SIMT_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
SIMT_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
SIMT_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
SIMT_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }
SIMT_DEVICE int grid_x() { return static_cast<int>(gridDim.x); }
SIMT_DEVICE int grid_y() { return static_cast<int>(gridDim.y); }
SIMT_DEVICE int grid_z() { return static_cast<int>(gridDim.z); }
SIMT_DEVICE void sync_block() { __syncthreads(); }
SIMT_DEVICE void sync_warp() { __syncwarp(); }
SIMT_DEVICE void fence_device() { __threadfence(); }
SIMT_DEVICE uint32_t atomic_add(uint32_t* address, uint32_t value) {
  return atomicAdd(address, value);
}

SIMT_DEVICE uint32_t shared_address(uint32_t offset) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory)) + offset;
}
template <class T>
SIMT_DEVICE T lds(uint32_t offset);
template <>
SIMT_DEVICE uint16_t lds(uint32_t offset) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(shared_address(offset)) : "memory");
  return v;
}
template <>
SIMT_DEVICE uint32_t lds(uint32_t offset) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(shared_address(offset)) : "memory");
  return v;
}
template <>
SIMT_DEVICE U32x4 lds(uint32_t offset) {
  U32x4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(shared_address(offset))
               : "memory");
  return v;
}
template <>
SIMT_DEVICE F32x4 lds(uint32_t offset) {
  F32x4 v;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(shared_address(offset))
               : "memory");
  return v;
}
SIMT_DEVICE void sts(uint32_t offset, uint16_t value) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(shared_address(offset)), "h"(value) : "memory");
}
SIMT_DEVICE void sts(uint32_t offset, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared_address(offset)), "r"(value) : "memory");
}
// Through the constant cache: only what no launch in progress writes.
template <class T>
SIMT_DEVICE T ldg(const T* address) {
  return __ldg(address);
}
template <>
SIMT_DEVICE U32x4 ldg(const U32x4* address) {
  const uint4 v = __ldg(reinterpret_cast<const uint4*>(address));
  return {v.x, v.y, v.z, v.w};
}
// From the second-level cache, where other blocks' writes are seen.
SIMT_DEVICE F32x4 load_coherent(const F32x4* address) {
  const float4 v = __ldcg(reinterpret_cast<const float4*>(address));
  return {v.x, v.y, v.z, v.w};
}
template <class T>
SIMT_DEVICE void stg(T* address, T value) {
  *address = value;
}

// Copies kBytes of which the first `valid` are read and the others are zero.
template <int kBytes>
SIMT_DEVICE void cp_async(uint32_t to, const void* from, int valid) {
  static_assert(kBytes == 16, "the first-level cache is bypassed by 16 bytes only");
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid)
               : "memory");
}
SIMT_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
SIMT_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}
SIMT_DEVICE void ldmatrix_x4(uint32_t (&r)[4], uint32_t offset) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(offset))
               : "memory");
}

#define SIMT_MMA(name, type)                                                             \
  SIMT_DEVICE void name(float(&d)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1) { \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                           \
        ".f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"                        \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                 \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                 \
  }
SIMT_MMA(mma_bf16, "bf16")
SIMT_MMA(mma_f16, "f16")
#undef SIMT_MMA

// What only members of a family of architectures can (compiled as 100f, 120f, 100a, ...).
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
#define SIMT_FAMILY __CUDA_ARCH_FAMILY_SPECIFIC__
#elif defined(__CUDA_ARCH_SPECIFIC__)
#define SIMT_FAMILY __CUDA_ARCH_SPECIFIC__
#else
#define SIMT_FAMILY 0
#endif

// d = (a sa) (b sb)^T + d for 64 columns of E2M1 or 32 of E4M3 (mma_mxfp8). Scales are bytes: four
// of E4M3, for 16 columns each (mma_nvfp4), from kByte on two of E8M0, for 32 each (mma_mxfp4), or
// one of them (mma_mxfp8). Lanes 4 g and 4 g + 1 hold those of rows g and g + 8 of a, lane 4 g +
// kLaneB those of row g of b. Capability 12.x has it; elsewhere it stops the kernel.
#if SIMT_FAMILY >= 1200
#define SIMT_MMA_BLOCK_SCALED(name, kind, shape, elements, scales)                            \
  template <int kByte, int kLaneB>                                                            \
  SIMT_DEVICE void name(float(&d)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1,        \
                        uint32_t sa, uint32_t sb) {                                           \
    asm("mma.sync.aligned." kind "." shape ".row.col.f32." elements ".f32." scales            \
        " {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3},{%10},{%12,%13},{%11},{%12,%14};" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                      \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sa), "r"(sb),     \
          "h"(static_cast<uint16_t>(kByte)), "h"(uint16_t{0}),                                \
          "h"(static_cast<uint16_t>(kLaneB)));                                                \
  }
#else
#define SIMT_MMA_BLOCK_SCALED(name, kind, shape, elements, scales)                       \
  template <int kByte, int kLaneB>                                                       \
  SIMT_DEVICE void name(float(&)[4], const uint32_t(&)[4], uint32_t, uint32_t, uint32_t, \
                        uint32_t) {                                                      \
    __trap();                                                                            \
  }
#endif
SIMT_MMA_BLOCK_SCALED(mma_nvfp4, "kind::mxf4nvf4.block_scale.scale_vec::4X", "m16n8k64",
                      "e2m1.e2m1", "ue4m3")
SIMT_MMA_BLOCK_SCALED(mma_mxfp4, "kind::mxf4.block_scale.scale_vec::2X", "m16n8k64", "e2m1.e2m1",
                      "ue8m0")
SIMT_MMA_BLOCK_SCALED(mma_mxfp8, "kind::mxf8f6f4.block_scale.scale_vec::1X", "m16n8k32",
                      "e4m3.e4m3", "ue8m0")
#undef SIMT_MMA_BLOCK_SCALED

// Eight E2M1 codes, the first in the lowest bits; to nearest even, beyond 6 is 6.
SIMT_DEVICE uint32_t to_e2m1x8(const float (&v)[8]) {
  uint32_t codes = 0;
#if SIMT_FAMILY >= 1000
  asm("{.reg .b8 b0, b1, b2, b3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b0, %2, %1;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b1, %4, %3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b2, %6, %5;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b3, %8, %7;\n"
      "mov.b32 %0, {b0, b1, b2, b3};}"
      : "=r"(codes)
      : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]));
#else
  for (int i = 0; i < 8; ++i) {
    const float a = fabsf(v[i]);
    const uint32_t code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                          (a >= 3.5f) + (a > 5.0f);
    codes |= (code | __float_as_uint(v[i]) >> 31 << 3) << 4 * i;
  }
#endif
  return codes;
}
// To nearest even; beyond 448 is 448.
SIMT_DEVICE uint32_t to_e4m3(float value) {
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
}

SIMT_DEVICE float shfl_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
SIMT_DEVICE uint32_t shfl_xor(uint32_t value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
SIMT_DEVICE uint32_t rotate_left(uint32_t value, int bits) {
  return __funnelshift_l(value, value, bits);
}
SIMT_DEVICE uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}

#define SIMT_BINARY(name, instruction)                          \
  SIMT_DEVICE uint32_t name(uint32_t a, uint32_t b) {           \
    uint32_t d;                                                 \
    asm(instruction " %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); \
    return d;                                                   \
  }
SIMT_BINARY(mul_f16x2, "mul.rn.f16x2")
SIMT_BINARY(sub_f16x2, "sub.rn.f16x2")
#undef SIMT_BINARY
// sm_80 has bfloat16 products and sums as fma alone; adding -0 and multiplying by 1 change nothing.
SIMT_DEVICE uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
SIMT_DEVICE uint32_t mul_bf16x2(uint32_t a, uint32_t b) { return fma_bf16x2(a, b, 0x80008000u); }
SIMT_DEVICE uint32_t sub_bf16x2(uint32_t a, uint32_t b) { return fma_bf16x2(b, 0xbf80bf80u, a); }
SIMT_DEVICE uint16_t to_bf16(float value) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
SIMT_DEVICE uint16_t to_f16(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
SIMT_DEVICE float from_f16(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
SIMT_DEVICE float as_float(uint32_t bits) { return __uint_as_float(bits); }
SIMT_DEVICE uint32_t as_bits(float value) { return __float_as_uint(value); }
SIMT_DEVICE float exponential(float value) { return expf(value); }

}  // namespace curvq::simt
#endif
