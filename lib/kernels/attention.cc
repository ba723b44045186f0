#include "curvq/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "kernels/attention_tile.h"
#include "kernels/gemm_path.h"

namespace curvq {
namespace {

using internal::AttentionTile;
using internal::kAttentionKeys;
using internal::kAttentionRows;

// One past the last float of all vectors.
const float* end_of(const HeadVectors& x, int64_t tokens, int64_t heads, int64_t head_dim) {
  return x.data + (tokens - 1) * x.token_stride + (heads - 1) * x.head_stride + head_dim;
}

void check(const AttentionShape& shape, const HeadVectors& q, const HeadVectors& k,
           const HeadVectors& v, const float* out, int64_t ldout) {
  const long long queries = shape.queries, keys = shape.keys, heads = shape.heads;
  const long long kv_heads = shape.kv_heads, head_dim = shape.head_dim;
  if (queries < 0 || keys < queries)
    throw UsageError(format("attention: %lld queries and %lld keys; keys hold the queries' tokens",
                            queries, keys));
  if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0 || head_dim < 1) {
    throw UsageError(
        format("attention: %lld heads of %lld that share %lld of keys; heads are a "
               "multiple of these, and no size is below 1",
               heads, head_dim, kv_heads));
  }
  if (queries == 0) return;
  if (q.data == nullptr || k.data == nullptr || v.data == nullptr || out == nullptr)
    throw UsageError("attention: q, k, v or out is a null pointer");
  for (const auto& [x, n] : {std::pair(q, heads), std::pair(k, kv_heads), std::pair(v, kv_heads)}) {
    if (x.token_stride < head_dim || (n > 1 && x.head_stride < head_dim)) {
      throw UsageError(format("attention: strides %lld and %lld; at least head_dim = %lld",
                              (long long)x.token_stride, (long long)x.head_stride, head_dim));
    }
  }
  if (ldout < heads * head_dim) {
    throw UsageError(format("attention: row stride ldout %lld; at least %lld", (long long)ldout,
                            heads * head_dim));
  }
  const float* out_end = out + (queries - 1) * ldout + heads * head_dim;
  for (const HeadVectors& x : {k, v}) {
    if (x.data < out_end && out < end_of(x, keys, kv_heads, head_dim))
      throw UsageError("attention: out overlaps the keys or values");
  }
}

// A tile's memory, one for each thread.
class TileMemory {
 public:
  AttentionTile tile(int64_t rows, int64_t head_dim) {
    const int64_t width = (head_dim + 15) / 16 * 16;
    constexpr int64_t kFirst = 16;  // floats, to begin on a cache line
    floats_.resize(kFirst + kAttentionRows * (2 * width + 1 + 16 + kAttentionKeys) +
                   2 * kAttentionKeys * width);
    auto address = reinterpret_cast<uintptr_t>(floats_.data());
    float* at = floats_.data() + (64 - address % 64) % 64 / sizeof(float);
    const auto take = [&](int64_t count) { return std::exchange(at, at + count); };
    AttentionTile t;
    t.rows = rows, t.head_dim = head_dim, t.width = width;
    t.limits = limits;
    t.keys = take(width * kAttentionKeys);
    t.values = take(kAttentionKeys * width);
    t.queries = take(kAttentionRows * width);
    t.outputs = take(kAttentionRows * width);
    t.scores = take(kAttentionRows * kAttentionKeys);
    t.sums = take(kAttentionRows * 16);
    t.largest = take(kAttentionRows);
    std::fill_n(t.outputs, rows * width, 0.0f);
    std::fill_n(t.sums, rows * 16, 0.0f);
    std::fill_n(t.largest, rows, -std::numeric_limits<float>::infinity());
    // What no vector of a tensor fills.
    for (int64_t j = 0; j < kAttentionKeys; ++j)
      std::fill_n(t.values + j * width + head_dim, width - head_dim, 0.0f);
    return t;
  }
  int64_t limits[kAttentionRows];

  static TileMemory& of_thread() {
    thread_local TileMemory memory;
    return memory;
  }

 private:
  std::vector<float> floats_;
};

}  // namespace

AttentionTraffic attention(const AttentionShape& shape, const HeadVectors& q, const HeadVectors& k,
                           const HeadVectors& v, float* out, int64_t ldout) {
  check(shape, q, k, v, out, ldout);
  internal::AttentionStep& step = *internal::select_gemm_path().attention_step;
  const int64_t shared = shape.heads / shape.kv_heads, dim = shape.head_dim;
  // Rows of a key head: its query heads of the first token, of the second, ...
  const int64_t rows = shape.queries * shared;
  const int64_t tiles = (rows + kAttentionRows - 1) / kAttentionRows;
  const float factor = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
  std::vector<AttentionTraffic> traffic(tiles * shape.kv_heads);
  const auto task = [&](int64_t i) {
    const int64_t kv_head = i / tiles, begin = i % tiles * kAttentionRows;
    const int64_t count = std::min(kAttentionRows, rows - begin);
    TileMemory& memory = TileMemory::of_thread();
    const AttentionTile tile = memory.tile(count, dim);
    const auto token = [&](int64_t r) { return (begin + r) / shared; };
    const auto head = [&](int64_t r) { return kv_head * shared + (begin + r) % shared; };
    for (int64_t r = 0; r < count; ++r) {
      memory.limits[r] = shape.keys - shape.queries + token(r) + 1;
      const float* from = q.data + token(r) * q.token_stride + head(r) * q.head_stride;
      for (int64_t d = 0; d < dim; ++d) tile.queries[r * tile.width + d] = from[d] * factor;
    }
    const int64_t keys = memory.limits[count - 1];
    for (int64_t first = 0; first < keys; first += kAttentionKeys) {
      step(tile, first, std::min(kAttentionKeys, keys - first),
           k.data + first * k.token_stride + kv_head * k.head_stride, k.token_stride,
           v.data + first * v.token_stride + kv_head * v.head_stride, v.token_stride);
    }
    for (int64_t r = 0; r < count; ++r) {
      const float sum = std::accumulate(tile.sums + r * 16, tile.sums + (r + 1) * 16, 0.0f);
      float* to = out + token(r) * ldout + head(r) * dim;
      for (int64_t d = 0; d < dim; ++d) to[d] = tile.outputs[r * tile.width + d] / sum;
    }
    constexpr int64_t kBytes = sizeof(float);
    traffic[i] = {(count + 2 * keys) * dim * kBytes, count * dim * kBytes};
  };
  const int64_t tasks = tiles * shape.kv_heads;
  constexpr int64_t kLeastParallel = 65536;  // products: waking threads costs more than so many
  if (num_threads() > 1 && shape.queries * shape.heads * shape.keys * dim >= kLeastParallel) {
    parallel_for(0, tasks, task);
  } else {
    for (int64_t i = 0; i < tasks; ++i) task(i);
  }
  AttentionTraffic all;
  for (const AttentionTraffic& one : traffic) {
    all.read_bytes += one.read_bytes;
    all.written_bytes += one.written_bytes;
  }
  return all;
}

}  // namespace curvq
