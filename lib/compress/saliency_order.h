// Optimal Brain Surgeon for rounding: the cheapest weight next.
#pragma once

#include <cstdint>
#include <vector>

#include "curvq/formats/scheme.h"

namespace curvq::internal {

// Rounds the columns of a block J for one row, the weight with the least saliency first,
//   p = argmin (t_p - round(t_p))^2 / (2 C_pp),  t -= (t_p - q_p) / C_pp C_p,
//   C -= C_p C_p^T / C_pp,
// C = U_JJ^T U_JJ the inverse Hessian of what is left to round (Hassibi and Stork 1992; for
// rounding, Frantar and Alistarh 2022).
class SaliencyOrder {
 public:
  //   upper  U_JJ [size, size], row stride ld; must outlive the object
  SaliencyOrder(const float* upper, int64_t size, int64_t ld);

  struct Column {
    float weight = 0, scale = 1;
    int zero_point = 0;
    bool kept = true;  // false: the weight becomes zero
    uint8_t code = 0;  // the result, and
    float error = 0;   // e_j with which later columns become w_k -= e_j U_jk
  };
  void round(const Scheme& scheme, std::vector<Column>& columns);

 private:
  const float* upper_;
  int64_t size_, ld_;
  std::vector<double> inverse_;                  // C before the first weight
  std::vector<double> left_, target_, rounded_;  // of the row at hand
};

}  // namespace curvq::internal
