// Pruning one layer: which weights become zero, and what the rest become.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "curvq/compress/prepared_hessian.h"

namespace curvq {

// Which weights are compared with which, and how many go.
struct SparsityPattern {
  double sparsity = 0.5;        // share of all weights that go; 0 or more, below 1
  int64_t keep = 0, group = 0;  // N and M of N:M: of M weights in a row N stay; 0: unstructured

  // "2:4". Throws UsageError for anything else than two numbers 0 < N < M <= 64.
  static SparsityPattern parse(const std::string& text);
  bool structured() const { return group > 0; }
  double share() const;          // of weights that go
  std::string describe() const;  // "2:4", "50 %"
  // Throws UsageError naming field, value and bound.
  void validate() const;
  // Throws UsageError naming the layer unless M divides its inputs and a weight is left of it.
  void require_fit(const std::string& layer, int64_t rows, int64_t cols) const;
};

enum class PruneMethod {
  kMagnitude,  // |w|, compared over the layer
  kWanda,      // |w| sqrt(H_jj), compared within each row (Sun et al. 2023)
  kObd,        // w^2 d / 2, d the diagonal of the loss, compared over the layer (LeCun et al. 1990)
  // w^2 / [H^-1]_jj, and the rest makes up for it (SparseGPT, Frantar and Alistarh 2023)
  kObs,
  // w^2 / [F^-1]_jj, F the empirical Fisher matrix in blocks, compared over the layer, and the rest
  // of a block makes up for what goes (WoodFisher, Singh and Alistarh 2020)
  kWoodFisher,
};

// "magnitude", "wanda", "obd", "obs", "woodfisher".
std::string method_name(PruneMethod method);
// Throws UsageError naming the methods there are.
PruneMethod parse_prune_method(const std::string& name);

struct PruneOptions : DampingOptions {
  PruneMethod method = PruneMethod::kObs;
  SparsityPattern pattern;
  // Columns among which kObs chooses an unstructured mask at a time. 1 or more.
  int64_t block_size = 128;
  // Rounds of improve_pruned() after the mask was chosen by any method; 0 or more.
  int sweeps = 0;

  // Whether a layer needs its Hessian (kObd: unless it has another diagonal).
  bool uses_hessian() const;
  // Throws UsageError naming field, value and bound.
  void validate() const;
};

// One linear layer's pruning problem; nothing in it is modified.
struct PruneProblem {
  std::string name;
  const float* weight = nullptr;  // [rows, cols], row-major
  int64_t rows = 0, cols = 0;
  const float* hessian = nullptr;  // [cols, cols], 2/N sum x x^T; kMagnitude and kObd need none
  // [num_gradients, rows, cols] of the loss in the weight, one a sample, for kWoodFisher
  const float* gradients = nullptr;
  int64_t num_gradients = 0;
  const float* diagonal = nullptr;  // [rows, cols] of the loss's Hessian, for kObd; null: that of H
};

struct PrunedMatrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> weight;  // [rows, cols]; zero where the mask is
  std::vector<uint8_t> mask;  // [rows, cols]; 1: kept
};

struct PruneResult {
  PrunedMatrix matrix;
  double damping = 0;          // 0 where the method has none
  std::string raised_because;  // see PreparedHessian
  int64_t dead_inputs = 0;
  bool all_dead = false;           // H said nothing: the mask is that of kMagnitude
  std::vector<double> objectives;  // f before and after each sweep; empty without sweeps
};

// Zeroes the share of weights that the pattern says: exactly round(sparsity rows cols) of them, or
// M - N of every M. kObs goes through the columns in order: with U^T U = (H + damping)^-1, the mask
// of each block of columns is chosen by w_j^2 / U_jj^2 (of each group of M when its first column is
// reached), and a weight that goes leaves e = w_j / U_jj, w_k -= e U_jk to all later columns.
// Inputs that are always zero cost nothing, so their weights go first.
// Throws NumericalError for a weight or Hessian that is not finite, and as prepare_hessian() does;
// UsageError where M does not divide cols or the method's matrix is missing. The result does not
// depend on the number of threads.
PruneResult prune(const PruneProblem& problem, const PruneOptions& options);

// Lowers f = tr((W - Q) H (W - Q)^T) over the kept weights and the mask; the pattern stays: N of
// every M, or, unstructured, the number kept in each strip of 64 rows. f never rises. First, and
// after each sweep, ten steps of conjugate gradients on the kept weights (the least-squares fit
// that the mask allows, preconditioned by the diagonal of H). A sweep takes a block J of columns at
// a time: with D = W - Q and P = D H, the best values of a row's block, the others fixed and all of
// them kept, are t = q + P_J H_JJ^-1; from these the weight with the least t_p^2 / C_pp, C =
// H_JJ^-1, is taken out, t -= t_p / C_pp C_p and C -= C_p C_p^T / C_pp, until the pattern holds
// (Optimal Brain Compression, Frantar and Alistarh 2022, within a block); unstructured, the rows of
// a strip compete. The new mask and values are taken where they lower f in float64.
//   weight  [rows, cols] float32; hessian [cols, cols] float32, symmetric, finite, semidefinite
// Returns f before, and after each sweep: sweeps + 1 values.
std::vector<double> improve_pruned(const float* weight, const float* hessian,
                                   const SparsityPattern& pattern, int sweeps,
                                   PrunedMatrix& pruned);

}  // namespace curvq
