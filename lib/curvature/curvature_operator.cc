#include "curvq/curvature/curvature_operator.h"

#include <utility>

#include "curvature/chunk_graph.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/curvature/statistics.h"
#include "io/hash.h"
#include "nn/torch_errors.h"

namespace curvq {
namespace {

void check_vectors(const Problem& problem, const torch::Tensor& vectors) {
  if (vectors.dim() != 2 || vectors.size(1) != problem.dimension() ||
      vectors.scalar_type() != torch::typeMetaToScalarType(problem.options().dtype())) {
    throw UsageError(format("vectors must be %s [k, %lld], not %s %s",
                            torch::toString(torch::typeMetaToScalarType(problem.options().dtype())),
                            static_cast<long long>(problem.dimension()),
                            torch::toString(vectors.scalar_type()),
                            c10::str(vectors.sizes()).c_str()));
  }
}

}  // namespace

std::string curvature_name(Curvature curvature) {
  switch (curvature) {
    case Curvature::kHessian:
      return "hessian";
    case Curvature::kGaussNewton:
      return "ggn";
    case Curvature::kFisher:
      return "fisher";
    case Curvature::kSampledFisher:
      return "sampled-fisher";
    case Curvature::kEmpiricalFisher:
      return "empirical-fisher";
  }
  throw std::logic_error("curvature");
}

void CurvatureOptions::validate() const {
  if (draws < 1)
    throw UsageError(format("draws is %lld, must be 1 or more", static_cast<long long>(draws)));
  if (kept_graphs < 0)
    throw UsageError(
        format("kept_graphs is %lld, must be 0 or more", static_cast<long long>(kept_graphs)));
}

CurvatureOperator::CurvatureOperator(Problem problem, Curvature curvature, CurvatureOptions options)
    : problem_(std::move(problem)), curvature_(curvature), options_(options) {
  options_.validate();
  const Loss& loss = problem_.loss();
  const bool true_fisher =
      curvature == Curvature::kFisher || curvature == Curvature::kSampledFisher;
  if (true_fisher && !loss.is_likelihood()) {
    throw UnsupportedError("the loss '" + loss.name() +
                           "' is no likelihood, so that it has no true Fisher matrix; take the "
                           "Gauss-Newton or the empirical Fisher matrix");
  }
  if (curvature != Curvature::kHessian && !loss.has_outputs()) {
    throw UnsupportedError(problem_.model().name +
                           " returns its own loss, for which there is only "
                           "the Hessian; give a model that returns its outputs");
  }
  kept_.resize(problem_.num_chunks());
}

CurvatureOperator::~CurvatureOperator() = default;

bool CurvatureOperator::parameters_changed() {
  if (options_.kept_graphs == 0) return false;
  io::Hasher hasher;
  for (const NamedTensor& parameter : problem_.model().parameters) {
    const torch::Tensor values = parameter.value.detach().cpu().contiguous();
    hasher.add(values.data_ptr(), values.nbytes());
  }
  std::string hash = hasher.hex();
  const bool changed = hash != parameters_hash_;
  parameters_hash_ = std::move(hash);
  return changed;
}

std::shared_ptr<ChunkGraph> CurvatureOperator::graph(int64_t chunk, bool keep) {
  if (kept_[chunk]) return kept_[chunk];
  const Batch batch = problem_.chunk(chunk);
  std::shared_ptr<ChunkGraph> graph;
  if (curvature_ == Curvature::kHessian) {
    graph = hessian_graph(problem_, batch);
  } else {
    // A stream of its own for each chunk, so that a chunk's labels stay when its graph is rebuilt.
    constexpr uint64_t kStride = 0x9E3779B97F4A7C15;
    const torch::Generator generator =
        make_generator(options_.seed + kStride * static_cast<uint64_t>(chunk));
    graph = output_graph(problem_, batch, curvature_, options_.draws, generator);
  }
  if (keep) kept_[chunk] = graph;
  return graph;
}

torch::Tensor CurvatureOperator::apply(const torch::Tensor& vectors) {
  check_vectors(problem_, vectors);
  for (int64_t row = 0; row < vectors.size(0); ++row)
    problem_.check_finite(vectors[row].detach(), "the vector to multiply");
  if (parameters_changed()) std::fill(kept_.begin(), kept_.end(), nullptr);
  torch::AutoGradMode enable(true);
  torch::Tensor products;  // made behind the first product, which needs more memory without it
  const bool keep = problem_.num_chunks() <= options_.kept_graphs;
  for (int64_t chunk = 0; chunk < problem_.num_chunks(); ++chunk) {
    with_torch_errors(problem_.model().name, [&] {
      const std::shared_ptr<ChunkGraph> graph = this->graph(chunk, keep);
      for (int64_t row = 0; row < vectors.size(0); ++row) {
        const bool retain = keep || row + 1 < vectors.size(0);
        const auto part = graph->product(problem_.split(vectors[row].detach()), retain);
        if (!products.defined()) products = torch::empty({vectors.size(0), dimension()}, options());
        if (chunk == 0) {
          problem_.copy_to(products[row], part);
        } else {
          problem_.add_to(products[row], part);
        }
      }
    });
  }
  if (!products.defined()) return torch::zeros_like(vectors);  // of no vectors
  for (int64_t row = 0; row < products.size(0); ++row)
    problem_.check_finite(products[row], "the product with the " + curvature_name(curvature_));
  return products;
}

}  // namespace curvq
