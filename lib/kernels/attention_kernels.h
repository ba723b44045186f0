// A step of attention_tile.h, written once for vectors V of kLanes float32, 8 or 16: F, load,
// store, set1, fma, mul, add, sub, max (its second argument where one is NaN), power_of_two(magic +
// n), transpose of 8 x 8. Sums have the same order for all of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/attention_tile.h"

namespace curvq::internal {
namespace {

template <class V>
struct AttentionKernels {
  using F = typename V::F;
  // 16 columns by so many rows that the sums fill twelve vectors.
  static constexpr int64_t kLanes = V::kLanes, kVectors = 16 / kLanes, kTileRows = 12 / kVectors;
  static constexpr int64_t kKeys = kAttentionKeys;

  // exp(x) for x <= 0, relative error below 4 * 2^-24; below -87 that of -87.
  // x = n log 2 + r, |r| <= log(2) / 2; the terms of exp(r) from r^8 / 8! on are below 2^-27.
  [[gnu::always_inline]] static F exponential(F x) {
    constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    x = V::max(V::set1(-87.0f), x);
    const F shifted = V::fma(x, V::set1(1.44269504f), V::set1(kMagic));
    const F n = V::sub(shifted, V::set1(kMagic));
    // log 2 in two parts, the first with so few bits that n times it is exact.
    F r = V::fma(n, V::set1(-0.693145752f), x);
    r = V::fma(n, V::set1(-1.42860677e-6f), r);
    F p = V::set1(1.0f / 5040);
    constexpr float kTerms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    for (const float c : kTerms) p = V::fma(p, r, V::set1(c));
    return V::mul(p, V::power_of_two(shifted));
  }

  // to[d, j] = k[j, d], zeros where there is no key.
  static void pack_keys(const AttentionTile& tile, int64_t count, const float* k, int64_t stride) {
    float* to = tile.keys;
    int64_t j = 0;
    for (; j + 8 <= count; j += 8) {
      int64_t d = 0;
      for (; d + 8 <= tile.head_dim; d += 8)
        V::transpose(k + j * stride + d, stride, to + d * kKeys + j, kKeys);
      for (; d < tile.head_dim; ++d) {
        for (int64_t i = 0; i < 8; ++i) to[d * kKeys + j + i] = k[(j + i) * stride + d];
      }
    }
    for (; j < kKeys; ++j) {
      for (int64_t d = 0; d < tile.head_dim; ++d)
        to[d * kKeys + j] = j < count ? k[j * stride + d] : 0.0f;
    }
  }

  static void pack_values(const AttentionTile& tile, int64_t count, const float* v,
                          int64_t stride) {
    for (int64_t j = 0; j < count; ++j)
      std::memcpy(tile.values + j * tile.width, v + j * stride, tile.head_dim * sizeof(float));
  }

  // out [kRows, 16] = or += a [kRows, depth] b [depth, 16].
  template <int kRows>
  [[gnu::always_inline]] static void product(int64_t depth, const float* a, int64_t lda,
                                             const float* b, int64_t ldb, bool add, float* out,
                                             int64_t ldout) {
    F sums[kRows][kVectors];
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        sums[i][v] = add ? V::load(out + i * ldout + v * kLanes) : V::set1(0);
    }
    for (int64_t d = 0; d < depth; ++d, b += ldb) {
      F columns[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) columns[v] = V::load(b + v * kLanes);
#pragma GCC unroll 12
      for (int i = 0; i < kRows; ++i) {
        const F x = V::set1(a[i * lda + d]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sums[i][v] = V::fma(x, columns[v], sums[i][v]);
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) V::store(out + i * ldout + v * kLanes, sums[i][v]);
    }
  }

  // The same for up to kTileRows rows and any multiple of 16 columns.
  template <int kRows = kTileRows>
  static void products(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t lda,
                       const float* b, int64_t ldb, bool add, float* out, int64_t ldout) {
    if constexpr (kRows > 1) {
      if (rows < kRows)
        return products<kRows - 1>(rows, columns, depth, a, lda, b, ldb, add, out, ldout);
    }
    for (int64_t c = 0; c < columns; c += kVectors * kLanes)
      product<kRows>(depth, a, lda, b + c, ldb, add, out + c, ldout);
  }

  // Scores [kKeys] of a row, of which it sees the first `seen`, become p; its sums so far are
  // scaled to the new largest score.
  static void soften(const AttentionTile& tile, int64_t row, int64_t seen) {
    float* s = tile.scores + row * kKeys;
    for (int64_t j = seen; j < kKeys; ++j) s[j] = -std::numeric_limits<float>::infinity();
    alignas(64) float lanes[kLanes];
    F most = V::load(s);
    for (int64_t j = kLanes; j < kKeys; j += kLanes) most = V::max(V::load(s + j), most);
    V::store(lanes, most);
    float largest = tile.largest[row];
    for (const float lane : lanes) largest = lane > largest ? lane : largest;
    const F top = V::set1(largest);
    if (largest != tile.largest[row]) {
      const F factor = exponential(V::sub(V::set1(tile.largest[row]), top));
      tile.largest[row] = largest;
      float* out = tile.outputs + row * tile.width;
      for (int64_t d = 0; d < tile.width; d += kLanes)
        V::store(out + d, V::mul(V::load(out + d), factor));
      for (int64_t l = 0; l < 16; l += kLanes) {
        float* sum = tile.sums + row * 16 + l;
        V::store(sum, V::mul(V::load(sum), factor));
      }
    }
    for (int64_t j = 0; j < seen; j += kLanes)
      V::store(s + j, exponential(V::sub(V::load(s + j), top)));
    for (int64_t j = seen; j < kKeys; ++j) s[j] = 0;
    for (int64_t j = 0; j < kKeys; j += kLanes) {
      float* sum = tile.sums + row * 16 + j % 16;
      V::store(sum, V::add(V::load(sum), V::load(s + j)));
    }
  }

  static void step(const AttentionTile& tile, int64_t first, int64_t count, const float* k,
                   int64_t k_stride, const float* v, int64_t v_stride) {
    pack_keys(tile, count, k, k_stride);
    pack_values(tile, count, v, v_stride);
    const auto seen = [&](int64_t row) {
      const int64_t keys = tile.limits[row] - first;
      return keys < 0 ? 0 : keys < count ? keys : count;
    };
    const int64_t width = tile.width;
    for (int64_t row = 0; row < tile.rows; row += kTileRows) {
      const int64_t rows = tile.rows - row < kTileRows ? tile.rows - row : kTileRows;
      if (seen(row + rows - 1) == 0) continue;
      float* scores = tile.scores + row * kKeys;
      products(rows, kKeys, tile.head_dim, tile.queries + row * width, width, tile.keys, kKeys,
               false, scores, kKeys);
      for (int64_t i = row; i < row + rows; ++i) {
        if (seen(i) > 0) soften(tile, i, seen(i));
      }
      // Values that a row does not see take no part in its sum, not even times zero.
      const int64_t common = seen(row);
      products(rows, width, common, scores, kKeys, tile.values, width, true,
               tile.outputs + row * width, width);
      for (int64_t i = row; i < row + rows; ++i) {
        if (seen(i) > common)
          products<1>(1, width, seen(i) - common, tile.scores + i * kKeys + common, kKeys,
                      tile.values + common * width, width, true, tile.outputs + i * width, width);
      }
    }
  }
};

}  // namespace
}  // namespace curvq::internal
