#include "nn/tiled_attention.h"

#include <torch/torch.h>

#include "curvq/kernels/attention.h"

namespace curvq::internal {

bool can_tile_attention(const torch::Tensor& queries) {
  return !at::GradMode::is_enabled() && queries.scalar_type() == torch::kFloat32;
}

torch::Tensor tiled_attention(const torch::Tensor& queries, const torch::Tensor& keys,
                              const torch::Tensor& values) {
  const auto dense = [](const torch::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); };
  const torch::Tensor q = dense(queries), k = dense(keys), v = dense(values);
  const int64_t n = q.size(0), t = q.size(2), width = q.size(1) * q.size(3);
  const AttentionShape shape{t, k.size(2), q.size(1), k.size(1), q.size(3)};
  torch::Tensor out = torch::empty({n, t, width}, torch::kFloat32);
  for (int64_t i = 0; i < n; ++i) {
    const auto vectors = [i](const torch::Tensor& x) {
      return HeadVectors{x.data_ptr<float>() + i * x.stride(0), x.stride(2), x.stride(1)};
    };
    attention(shape, vectors(q), vectors(k), vectors(v), out.data_ptr<float>() + i * t * width,
              width);
  }
  return out;
}

}  // namespace curvq::internal
