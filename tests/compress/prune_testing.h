// Problems of pruning a layer, and their exact answers.
#pragma once

#include <Eigen/Dense>
#include <random>
#include <string>
#include <vector>

#include "curvq/compress/prune.h"

namespace curvq {

using RowMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

inline RowMatrix random_matrix(int rows, int cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  RowMatrix m(rows, cols);
  for (int i = 0; i < m.size(); ++i) m.data()[i] = normal(random);
  return m;
}

// Correlated inputs: 2/N X^T X with X = Z M.
inline RowMatrix random_hessian(int k, int n, unsigned seed) {
  const RowMatrix x = random_matrix(n, k, seed) * random_matrix(k, k, seed + 1);
  return 2.0f / n * x.transpose() * x;
}

inline PruneProblem problem_of(const RowMatrix& w, const RowMatrix& h) {
  PruneProblem problem;
  problem.name = "layer";
  problem.weight = w.data();
  problem.rows = w.rows();
  problem.cols = w.cols();
  problem.hessian = h.data();
  return problem;
}

inline PruneOptions options_of(PruneMethod method, const std::string& pattern, int sweeps = 0) {
  PruneOptions options;
  options.method = method;
  if (pattern.find(':') != std::string::npos) {
    options.pattern = SparsityPattern::parse(pattern);
  } else {
    options.pattern.sparsity = std::stod(pattern);
  }
  options.sweeps = sweeps;
  return options;
}

inline double objective(const RowMatrix& w, const PrunedMatrix& q, const RowMatrix& h) {
  const Eigen::MatrixXd d =
      (w - Eigen::Map<const RowMatrix>(q.weight.data(), q.rows, q.cols)).cast<double>();
  return (d * h.cast<double>()).cwiseProduct(d).sum();
}

// The best values of the weights of row `w` that `kept` lists, all others zero.
inline Eigen::VectorXd least_squares(const Eigen::VectorXd& w, const Eigen::MatrixXd& h,
                                     const std::vector<int>& kept) {
  const Eigen::MatrixXd inner = h(kept, kept);
  Eigen::VectorXd q = Eigen::VectorXd::Zero(w.size());
  const Eigen::VectorXd wanted = (h * w)(kept), fit = inner.llt().solve(wanted);
  q(kept) = fit;
  return q;
}

inline double cost(const Eigen::VectorXd& w, const Eigen::VectorXd& q, const Eigen::MatrixXd& h) {
  return (w - q).dot(h * (w - q));
}

inline std::vector<int> kept_of(const PrunedMatrix& q, int row) {
  std::vector<int> kept;
  for (int j = 0; j < q.cols; ++j) {
    if (q.mask[row * q.cols + j]) kept.push_back(j);
  }
  return kept;
}

}  // namespace curvq
