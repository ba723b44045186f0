// The operations of simt.h on the CPU: each does what PTX says and lets the block watch.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "curvq/formats/dtype.h"
#include "curvq/formats/minifloat.h"
#include "kernels/cuda/simt/block.h"

namespace curvq::simt {

inline int thread_index() { return running_block->current().index; }
inline int block_x() { return running_block->index.x; }
inline int block_y() { return running_block->index.y; }
inline int block_z() { return running_block->index.z; }
inline int grid_x() { return running_block->grid.x; }
inline int grid_y() { return running_block->grid.y; }
inline int grid_z() { return running_block->grid.z; }
inline void sync_block(Site site = Site::current()) { running_block->barrier(site); }
inline void sync_warp(Site site = Site::current()) { running_block->sync_warp(site); }
inline void fence_device() { running_block->fence(); }
inline uint32_t atomic_add(uint32_t* address, uint32_t value, Site site = Site::current()) {
  return running_block->atomic_add(address, value, site);
}

template <class T>
T lds(uint32_t offset, Site site = Site::current()) {
  static_assert(sizeof(T) >= kGranule, "races are watched in granules of two bytes");
  T value{};
  if (running_block->shared_access(offset, sizeof(T), false, site))
    std::memcpy(&value, running_block->shared(offset), sizeof(T));
  return value;
}

template <class T>
void sts(uint32_t offset, T value, Site site = Site::current()) {
  static_assert(sizeof(T) >= kGranule, "races are watched in granules of two bytes");
  if (running_block->shared_access(offset, sizeof(T), true, site))
    std::memcpy(running_block->shared(offset), &value, sizeof(T));
}

template <class T>
T ldg(const T* address, Site site = Site::current()) {
  return running_block->global_access(address, sizeof(T), false, false, site) ? *address : T{};
}

template <class T>
T load_coherent(const T* address, Site site = Site::current()) {
  return running_block->global_access(address, sizeof(T), false, true, site) ? *address : T{};
}

template <class T>
void stg(T* address, T value, Site site = Site::current()) {
  if (running_block->global_access(address, sizeof(T), true, true, site)) *address = value;
}

template <int kBytes>
void cp_async(uint32_t to, const void* from, int valid, Site site = Site::current()) {
  running_block->async_copy(to, from, kBytes, valid, site);
}
inline void cp_async_commit() { running_block->async_commit(); }
template <int kLeft>
void cp_async_wait() {
  running_block->async_wait(kLeft);
}

inline void ldmatrix_x4(uint32_t (&result)[4], uint32_t offset, Site site = Site::current()) {
  struct Lane {
    uint32_t offset;
    uint32_t* result;
  } lane{offset, result};
  const bool count = running_block->shared_access(offset, 16, false, site);
  if (!count) return;
  running_block->collective("ldmatrix", &lane, site, [](void** lanes) {
    running_block->count_matrix_rows(lanes);
    for (int to = 0; to < kWarp; ++to) {
      for (int matrix = 0; matrix < 4; ++matrix) {
        const auto* row = static_cast<Lane*>(lanes[matrix * 8 + to / 4]);
        std::memcpy(static_cast<Lane*>(lanes[to])->result + matrix,
                    running_block->shared(row->offset + 4 * (to % 4)), 4);
      }
    }
  });
}

// Sums of products are exact and cut to float32 towards zero, which is at least as far off as what
// tensor cores do.
inline float cut_sum(float d, double products) {
  const double sum = d + products;
  const auto near = static_cast<float>(sum);
  const bool larger = std::isfinite(near) && std::fabs(static_cast<double>(near)) > std::fabs(sum);
  return larger ? std::nextafter(near, 0.0f) : near;
}

// d = a b^T + d.
template <float (*kDecode)(uint16_t)>
void mma_16816(const char* name, float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
               Site site) {
  struct Lane {
    float* d;
    uint32_t a[4], b[2];
  } lane{d, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  running_block->collective(name, &lane, site, [](void** lanes) {
    ++running_block->counters().mma;
    double rows[16][16], columns[16][8];
    for (int l = 0; l < kWarp; ++l) {
      const auto* from = static_cast<Lane*>(lanes[l]);
      const int g = l / 4, t = l % 4;
      for (int half = 0; half < 2; ++half) {
        for (int i = 0; i < 4; ++i)
          rows[g + 8 * (i % 2)][2 * t + half + 8 * (i / 2)] =
              kDecode(static_cast<uint16_t>(from->a[i] >> (16 * half)));
        for (int i = 0; i < 2; ++i)
          columns[2 * t + half + 8 * i][g] =
              kDecode(static_cast<uint16_t>(from->b[i] >> (16 * half)));
      }
    }
    double sums[16][8] = {};
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < 16; ++k)
        for (int column = 0; column < 8; ++column)
          sums[row][column] += rows[row][k] * columns[k][column];
    for (int l = 0; l < kWarp; ++l) {
      auto* to = static_cast<Lane*>(lanes[l]);
      for (int i = 0; i < 4; ++i)
        to->d[i] = cut_sum(to->d[i], sums[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2]);
    }
  });
}

inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                     Site site = Site::current()) {
  mma_16816<bf16_to_f32>("mma_bf16", d, a, b0, b1, site);
}
inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                    Site site = Site::current()) {
  mma_16816<f16_to_f32>("mma_f16", d, a, b0, b1, site);
}

// The same of 32 bytes a row, elements of kBits each, of which every kGroup are scaled.
template <int kBits, int kGroup, float (*kValue)(uint8_t), float (*kScale)(uint8_t)>
void mma_block_scaled(const char* name, float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                      uint32_t b1, uint32_t sa, uint32_t sb, int byte, int lane_b, Site site) {
  constexpr int kWord = 32 / kBits, kColumns = 8 * kWord;  // elements of a word, of a row
  struct Lane {
    float* d;
    uint32_t a[4], b[2], sa, sb;
    int byte, lane_b;
  } lane{d, {a[0], a[1], a[2], a[3]}, {b0, b1}, sa, sb, byte, lane_b};
  running_block->collective(name, &lane, site, [](void** lanes) {
    ++running_block->counters().mma;
    const auto of = [lanes](int l) { return static_cast<Lane*>(lanes[l]); };
    const auto scale = [](uint32_t scales, int at) {
      return kScale(static_cast<uint8_t>(scales >> (8 * at)));
    };
    double rows[16][kColumns], columns[8][kColumns];
    for (int l = 0; l < kWarp; ++l) {
      for (int n = 0; n < kWord; ++n) {
        const auto value = [n](uint32_t word) {
          return kValue(static_cast<uint8_t>(word >> (kBits * n)));
        };
        const int g = l / 4, k = l % 4 * kWord + n, half = kColumns / 2;
        for (int i = 0; i < 4; ++i) rows[g + 8 * (i % 2)][k + half * (i / 2)] = value(of(l)->a[i]);
        for (int i = 0; i < 2; ++i) columns[g][k + half * i] = value(of(l)->b[i]);
      }
    }
    double sums[16][8] = {};
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 8; ++column) {
        const uint32_t sa = of(4 * (row % 8) + row / 8)->sa;
        const uint32_t sb = of(4 * column + of(0)->lane_b)->sb;
        for (int group = 0; group < kColumns / kGroup; ++group) {
          double sum = 0;
          for (int k = group * kGroup; k < (group + 1) * kGroup; ++k)
            sum += rows[row][k] * columns[column][k];
          const int at = of(0)->byte + group;
          sums[row][column] += sum * scale(sa, at) * scale(sb, at);
        }
      }
    }
    for (int l = 0; l < kWarp; ++l)
      for (int i = 0; i < 4; ++i)
        of(l)->d[i] = cut_sum(of(l)->d[i], sums[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2]);
  });
}

template <int kByte, int kLaneB>
void mma_nvfp4(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, uint32_t sa,
               uint32_t sb, Site site = Site::current()) {
  static_assert(kByte == 0);
  mma_block_scaled<4, 16, e2m1_to_f32, e4m3_to_f32>("mma_nvfp4", d, a, b0, b1, sa, sb, kByte,
                                                    kLaneB, site);
}
template <int kByte, int kLaneB>
void mma_mxfp4(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, uint32_t sa,
               uint32_t sb, Site site = Site::current()) {
  static_assert(kByte == 0 || kByte == 2);
  mma_block_scaled<4, 32, e2m1_to_f32, e8m0_to_f32>("mma_mxfp4", d, a, b0, b1, sa, sb, kByte,
                                                    kLaneB, site);
}
template <int kByte, int kLaneB>
void mma_mxfp8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, uint32_t sa,
               uint32_t sb, Site site = Site::current()) {
  mma_block_scaled<8, 32, e4m3_to_f32, e8m0_to_f32>("mma_mxfp8", d, a, b0, b1, sa, sb, kByte,
                                                    kLaneB, site);
}

inline uint32_t to_e2m1x8(const float (&v)[8]) {
  uint32_t codes = 0;
  for (int i = 0; i < 8; ++i) {
    const uint32_t sign = std::signbit(v[i]) ? 8 : 0;
    codes |= (std::isnan(v[i]) ? 7 : f32_to_e2m1(v[i]) | sign) << (4 * i);
  }
  return codes;
}
inline uint32_t to_e4m3(float value) { return f32_to_e4m3(value); }

template <class T>
T shfl_xor(T value, int mask, Site site = Site::current()) {
  struct Lane {
    T in, out;
    int mask;
  } lane{value, 0, mask};
  running_block->collective("shfl", &lane, site, [](void** lanes) {
    for (int l = 0; l < kWarp; ++l) {
      auto* to = static_cast<Lane*>(lanes[l]);
      to->out = static_cast<Lane*>(lanes[(l ^ to->mask) % kWarp])->in;
    }
  });
  return lane.out;
}

inline uint32_t rotate_left(uint32_t value, int bits) {
  return bits % 32 == 0 ? value : value << bits % 32 | value >> (32 - bits % 32);
}

// Byte i of the result is that of b:a which nibble i of `selector` names.
inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t byte = selector >> (4 * i) & 7;
    result |= static_cast<uint32_t>(bytes >> (8 * byte) & 0xff) << (8 * i);
  }
  return result;
}

inline uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
  const auto low = [](uint32_t v) { return bf16_to_f32(static_cast<uint16_t>(v)); };
  return f32_to_bf16(low(a) * low(b)) |
         static_cast<uint32_t>(f32_to_bf16(low(a >> 16) * low(b >> 16))) << 16;
}
inline uint32_t mul_f16x2(uint32_t a, uint32_t b) {
  const auto low = [](uint32_t v) { return f16_to_f32(static_cast<uint16_t>(v)); };
  return f32_to_f16(low(a) * low(b)) |
         static_cast<uint32_t>(f32_to_f16(low(a >> 16) * low(b >> 16))) << 16;
}
inline uint32_t sub_bf16x2(uint32_t a, uint32_t b) {
  const auto low = [](uint32_t v) { return bf16_to_f32(static_cast<uint16_t>(v)); };
  return f32_to_bf16(low(a) - low(b)) |
         static_cast<uint32_t>(f32_to_bf16(low(a >> 16) - low(b >> 16))) << 16;
}
inline uint32_t sub_f16x2(uint32_t a, uint32_t b) {
  const auto low = [](uint32_t v) { return f16_to_f32(static_cast<uint16_t>(v)); };
  return f32_to_f16(low(a) - low(b)) |
         static_cast<uint32_t>(f32_to_f16(low(a >> 16) - low(b >> 16))) << 16;
}
inline uint16_t to_bf16(float value) { return f32_to_bf16(value); }
inline uint16_t to_f16(float value) { return f32_to_f16(value); }
inline float from_f16(uint16_t bits) { return f16_to_f32(bits); }
inline float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t as_bits(float value) { return std::bit_cast<uint32_t>(value); }
inline float exponential(float value) { return std::exp(value); }

}  // namespace curvq::simt
