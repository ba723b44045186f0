#include "compress/fisher_mask.h"

#include <torch/torch.h>

#include <algorithm>

#include "compress/saliency_mask.h"
#include "curvq/curvature/inverse_hessian.h"

namespace curvq::internal {
namespace {

constexpr int64_t kBlock = 64;

std::vector<Segment> blocks_of_row(int64_t cols) {
  std::vector<Segment> blocks;
  for (int64_t begin = 0; begin < cols; begin += kBlock)
    blocks.push_back({"", begin, std::min(kBlock, cols - begin)});
  return blocks;
}

}  // namespace

PrunedMatrix prune_by_fisher_blocks(const PruneProblem& problem, const PruneOptions& options) {
  const int64_t rows = problem.rows, cols = problem.cols, samples = problem.num_gradients;
  torch::NoGradGuard no_grad;
  const auto wide = [](const float* data, at::IntArrayRef shape) {
    return torch::from_blob(const_cast<float*>(data), shape).to(torch::kFloat64);
  };
  const torch::Tensor gradients =
      torch::from_blob(const_cast<float*>(problem.gradients), {samples, rows, cols});
  const double mean = gradients.to(torch::kFloat64).square().mean().item<double>();
  InverseHessianOptions inverse_options;
  inverse_options.blocks = blocks_of_row(cols);
  inverse_options.alpha = mean > 0 ? std::max(options.damping, 1e-6) * mean : 1;
  const torch::Tensor weight = wide(problem.weight, {rows, cols});
  std::vector<InverseHessian> inverses;
  std::vector<float> saliencies(rows * cols);
  for (int64_t r = 0; r < rows; ++r) {
    const torch::Tensor of_row = gradients.select(1, r).to(torch::kFloat64).contiguous();
    inverses.push_back(inverse_hessian(of_row, inverse_options));
    const torch::Tensor saliency =
        (weight[r].square() / inverses.back().diagonal()).to(torch::kFloat32);
    std::copy_n(saliency.data_ptr<float>(), cols, saliencies.begin() + r * cols);
  }
  PrunedMatrix out{rows, cols, std::vector<float>(rows * cols),
                   mask_of_largest(saliencies, rows, cols, options.pattern, false)};
  // Of a block, the weights P go at once: w -= F^-1_{:P} (F^-1_PP)^-1 w_P.
  for (int64_t r = 0; r < rows; ++r) {
    for (size_t b = 0; b < inverse_options.blocks.size(); ++b) {
      const Segment& block = inverse_options.blocks[b];
      const int64_t first = r * cols + block.offset;
      std::vector<int64_t> gone;
      for (int64_t i = 0; i < block.size; ++i) {
        if (!out.mask[first + i]) gone.push_back(i);
      }
      torch::Tensor w = weight[r].narrow(0, block.offset, block.size);
      if (!gone.empty()) {
        const torch::Tensor index = torch::tensor(gone);
        const torch::Tensor columns = inverses[r].block(b).index_select(1, index);
        const torch::Tensor inner = columns.index_select(0, index);
        w = w - columns.matmul(at::linalg_solve(inner, w.index_select(0, index)));
      }
      const torch::Tensor narrow = w.to(torch::kFloat32).contiguous();
      for (int64_t i = 0; i < block.size; ++i)
        out.weight[first + i] = out.mask[first + i] ? narrow.data_ptr<float>()[i] : 0.0f;
    }
  }
  return out;
}

}  // namespace curvq::internal
