#include "curvature/held_out.h"

#include <torch/torch.h>

#include <algorithm>
#include <tuple>

namespace curvq {
namespace {

torch::Tensor small(const torch::Tensor& t) { return t.to(torch::kCPU, torch::kFloat64); }

}  // namespace

HeldOutSketch::HeldOutSketch(LinearOperator& op, int64_t count, ProbeKind probe,
                             torch::Generator generator)
    : epsilon(op.options().dtype() == torch::kFloat64 ? 0x1p-52 : 0x1p-23) {
  const int64_t n = op.dimension(), m = std::min(count, n);
  probes = draw_probes(probe, m, n, op.options(), generator);
  images = op.apply(probes);
  torch::Tensor columns, triangle;
  std::tie(columns, triangle) = torch::linalg_qr(images.t());  // Y^T = Q^T R
  const auto [u, sigma, v] = torch::linalg_svd(small(triangle));
  const double largest = sigma[0].item<double>();
  const int64_t rank = (sigma > 100 * epsilon * m * largest).sum().item<int64_t>();
  complete = rank < m || m == n;
  q = columns.t();
  if (rank < m) q = u.narrow(1, 0, rank).t().to(q.options()).matmul(q);
  hq = op.apply(q);
  products = m + q.size(0);
  core = small(hq.matmul(q.t()));
  core = 0.5 * (core + core.t());
  if (complete) return;
  sketch = small(triangle).t();
  inner = small(probes.matmul(q.t()));
  forms = small((probes * images).sum(1));
  squares = small(probes.square().sum(1));
  // R^-T e_i is orthogonal to every column of R but the i-th.
  directions = torch::linalg_inv(sketch).t();
  directions = directions / directions.norm(2, 1, true);
}

}  // namespace curvq
