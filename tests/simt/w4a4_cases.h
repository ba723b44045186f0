// Products with random operands to try the W4A4 kernels on, whoever runs them: the emulator or a
// device.
#pragma once

#include <string>
#include <vector>

#include "curvq/kernels/w4a4.h"

namespace curvq {

struct W4A4Kind {
  Scheme scheme;
  Float16Type type;
  std::string name() const;
};
const std::vector<W4A4Kind>& w4a4_kinds();

struct W4A4Case {
  W4A4Matrix weight;
  Float16Type type = Float16Type::kBFloat16;
  bool exact = false;  // small integers on the grid, scales 1: no rounding but that of the output
  int64_t m = 0, ldx = 0, ldout = 0;
  // Columns of x past k are NaN, and so is all of out: a kernel that uses them shows it.
  std::vector<uint16_t> x, out;
  std::vector<float> bias;  // empty: none

  std::string name() const;
};

// Random codes and scales; activations of very different sizes from group to group. Every other
// seed has a bias; rows of out are up to 4 elements longer than n.
W4A4Case make_w4a4_case(const W4A4Kind& kind, int64_t m, int64_t n, int64_t k, bool exact,
                        int seed);

// x by round_inputs(), [m, k].
std::vector<float> rounded_inputs(const W4A4Case& c);

// Empty, or what is wrong: x is not what round_inputs() makes of c.x; c.out is not the product with
// x within w4a4_reference()'s bound, or not equal to it where that is exact.
std::string quantizer_problem(const W4A4Case& c, const W4A4Matrix& x);
std::string product_problem(const W4A4Case& c, const W4A4Matrix& x);

}  // namespace curvq
