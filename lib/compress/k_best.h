// Nearest plane with several candidates kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace curvq::internal {

// The values that each column of a row may take, ascending.
using ColumnValues = std::vector<std::span<const float>>;

// K-best search (the M-algorithm) for q near w in the metric of H: columns in turn as in gptq(),
//   e_j = (w_j - q_j) / U_jj,  w_k -= e_j U_jk,  sum e_j^2 = (w - q) H (w - q)^T,
// where of all rows begun, each continued by up to four of the values around its w_j, those K live
// on whose sum is least. With K = 1 it is the nearest plane (Babai 1986), which is GPTQ.
class KBest {
 public:
  //   upper  U [n, n], row stride ld, U^T U = H^-1, columns in the order of rounding; must outlive
  //          the object
  KBest(const float* upper, int64_t n, int64_t ld, int64_t candidates);

  // Fills choices() for weight [n], `stride` apart, and returns the least sum. Deterministic.
  float search(const float* weight, int64_t stride, const ColumnValues& values);
  // [n] indices into each column's values.
  const std::vector<int32_t>& choices() const { return choices_; }

 private:
  struct Continuation {
    float loss;
    int32_t lane, choice;
  };

  void round_column(int64_t begin, int64_t j, int64_t end, std::span<const float> values);
  void gather(float* lanes, const std::vector<int32_t>& from);

  const float* upper_;
  int64_t n_, ld_, most_, live_ = 1;
  // [column][most_]; of a block of columns, and what they leave to all behind.
  std::vector<float> weight_, error_, loss_, gathered_;
  std::vector<int32_t> origin_, parent_, choice_, from_;
  std::vector<Continuation> pool_;
  std::vector<int32_t> choices_;
};

}  // namespace curvq::internal
