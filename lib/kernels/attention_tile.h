// What an instruction set does of attention. Plain data only, as in panel.h.
#pragma once

#include <cstdint>

namespace curvq::internal {

inline constexpr int64_t kAttentionRows = 48, kAttentionKeys = 64;

// Queries that share keys and values, and what they sum up. Row r of a matrix [rows, width] begins
// at r * width; width is head_dim rounded up to whole vectors of 16.
struct AttentionTile {
  int64_t rows, head_dim, width;
  const int64_t* limits;  // [rows] row r sees keys below limits[r] >= 1, not decreasing
  float* queries;         // [rows, width] times 1 / sqrt(head_dim)
  float* outputs;         // [rows, width] sums of p v, zeros at first
  float* largest;         // [rows] the largest score so far, minus infinity at first
  float* sums;            // [rows, 16] of p, zeros at first
  float* keys;            // [width, kAttentionKeys] room
  float* values;          // [kAttentionKeys, width] room
  float* scores;          // [rows, kAttentionKeys] room
};

// Adds `count` keys, of which the first is number `first`.
using AttentionStep = void(const AttentionTile& tile, int64_t first, int64_t count, const float* k,
                           int64_t k_stride, const float* v, int64_t v_stride);

AttentionStep attention_step_scalar;
#if defined(__x86_64__)
AttentionStep attention_step_avx2;    // needs AVX2 and FMA
AttentionStep attention_step_avx512;  // needs AVX-512 F, BW, VL and DQ
#endif

}  // namespace curvq::internal
