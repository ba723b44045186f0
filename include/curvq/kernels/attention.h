// Causal attention on raw pointers, in tiles that stay in the caches: no matrix of scores in
// memory.
#pragma once

#include <cstdint>

namespace curvq {

struct AttentionShape {
  int64_t queries = 0, keys = 0;    // tokens; the queries are the last of the keys' tokens
  int64_t heads = 0, kv_heads = 0;  // heads / kv_heads query heads share keys and values
  int64_t head_dim = 0;
};

// The vector of token t and head h begins at data + t token_stride + h head_stride.
struct HeadVectors {
  const float* data = nullptr;
  int64_t token_stride = 0, head_stride = 0;
};

// Bytes that moved between the tensors and a thread's tile.
struct AttentionTraffic {
  int64_t read_bytes = 0, written_bytes = 0;
};

// out[i, h] = sum_j p_j v[j, h'],  p = softmax_j(q[i, h] . k[j, h'] / sqrt(head_dim)),
// over the keys j <= keys - queries + i, h' = h kv_heads / heads.
//   out  [queries, heads, head_dim] float32, row stride ldout; may be q itself
// Online softmax (Milakov and Gimelshein 2018) in tiles (FlashAttention, Dao et al. 2022): blocks
// of 64 keys against up to 48 queries of the heads that share them. With M floats of a tile, keys
// and values are read queries * heads / kv_heads / 48 times, which is within a constant factor of
// the least possible traffic, queries keys head_dim^2 / M. Sums over keys and head_dim are float32
// in a fixed order, which depends neither on the other queries nor on the number of threads. With u
// = 2^-24, e = (head_dim + 4) u max_j sum_d |q_d k_jd| / sqrt(head_dim), the error is at most (2 e
// + (keys + 12) u) max_j |v_j| up to terms in e^2. Scores that are NaN or infinite and values that
// are not finite give what the formula gives. Throws UsageError for sizes that do not fit together,
// strides below head_dim, null pointers, or an out that overlaps k or v.
AttentionTraffic attention(const AttentionShape& shape, const HeadVectors& q, const HeadVectors& k,
                           const HeadVectors& v, float* out, int64_t ldout);

}  // namespace curvq
