// Hessian, Gauss-Newton and Fisher matrices of a problem as linear operators.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "curvq/curvature/problem.h"

namespace curvq {

// With f_m the outputs of loss term m of M, J_m their Jacobian in the parameters, l_m the loss:
enum class Curvature {
  // H = 1/M sum_m d^2 l_m / d theta^2: the gradient of g^T v, by double backward (Pearlmutter
  // 1994).
  kHessian,
  // G = 1/M sum_m J_m^T (d^2 l_m / d f_m^2) J_m (Schraudolph 2002). Positive semidefinite for a
  // loss that is convex in the outputs.
  kGaussNewton,
  // F = 1/M sum_m E_{y ~ p(.|f_m)} g g^T, g = J_m^T d l_m(y) / d f_m, the expectation exact: for
  // likelihoods in the outputs as natural parameters it equals G (Martens 2020).
  kFisher,
  // F with the expectation replaced by the mean over `draws` targets drawn for each term.
  kSampledFisher,
  // 1/M sum_m g g^T with the data's own targets.
  kEmpiricalFisher,
};

// "hessian", "ggn", "fisher", "sampled-fisher", "empirical-fisher".
std::string curvature_name(Curvature curvature);

struct CurvatureOptions {
  // kSampledFisher only: labels a term (1 or more) and their seed. The operator is one fixed matrix
  // for a seed and a chunk size.
  int64_t draws = 1;
  uint64_t seed = 0;
  // A chunk's graph is kept for further products if there are at most so many chunks; a product
  // then costs about half. One chunk: no more memory than the product itself. 0: always anew.
  int64_t kept_graphs = 1;

  void validate() const;
};

class ChunkGraph;

// Reads the parameters' values at each apply(); graphs that are kept are rebuilt when one was
// changed in place (LibTorch's optimizers do so without bumping version counters, so that the
// values themselves are hashed). Several vectors share the
// graph of a chunk. Not thread-safe.
class CurvatureOperator : public LinearOperator {
 public:
  // Throws UnsupportedError for kFisher and kSampledFisher with a loss that is no likelihood, and
  // for all but kHessian where the model returns its own loss.
  CurvatureOperator(Problem problem, Curvature curvature, CurvatureOptions options = {});
  ~CurvatureOperator() override;

  const Problem& problem() const { return problem_; }
  Curvature curvature() const { return curvature_; }

  int64_t dimension() const override { return problem_.dimension(); }
  torch::TensorOptions options() const override { return problem_.options(); }
  // Throws NumericalError, naming the parameter, for vectors or products that are not finite,
  // UsageError for vectors of another shape or dtype, and what Problem::outputs() and loss_of() do.
  torch::Tensor apply(const torch::Tensor& vectors) override;
  std::vector<Segment> segments() const override { return problem_.segments(); }

 private:
  std::shared_ptr<ChunkGraph> graph(int64_t chunk, bool keep);
  bool parameters_changed();

  Problem problem_;
  Curvature curvature_;
  CurvatureOptions options_;
  std::vector<std::shared_ptr<ChunkGraph>> kept_;
  std::string parameters_hash_;  // of the values that kept_ was built from
};

}  // namespace curvq
