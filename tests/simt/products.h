// Products with random operands to try the W4A16 kernels on, whoever runs them: the emulator or a
// device.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "curvq/kernels/w4a16.h"

namespace curvq {

struct Product {
  int64_t m, n, k;
  bool pair = false, bias = false, exact = false;  // exact: small integers and halves, scales 1
  int splits = 1;                                  // parts of k; 0: as the planner likes
  int64_t ldout = 0;                               // 0: n
  int seed = 1;
};

struct Operands {
  W4A16Weight weight;
  int64_t ldx, ldout;
  // Columns of x past k are NaN, and so is all of out: a kernel that uses them shows it.
  std::vector<uint16_t> x, out;
  std::vector<float> bias[2];  // empty: none

  const float* bias_of(int matrix) const {
    return bias[matrix].empty() ? nullptr : bias[matrix].data();
  }
};

// Random codes, and scales over the whole range that products of the type stay finite in. Exact:
// all scales 1, so that weights are multiples of 1/2.
QuantizedMatrix random_codes(const Scheme& scheme, int64_t n, int64_t k, bool exact,
                             std::mt19937& random);

Operands make_operands(const Scheme& scheme, Float16Type type, const Product& product);

struct Comparison {
  double worst = 0;       // error over w4a16_reference()'s bound; infinity for NaN
  int64_t differing = 0;  // outputs that are not the rounded reference
  int64_t overrun = 0;    // elements behind rows of out that were written
};
Comparison compare(const Operands& operands, int64_t m);

// One of each kind of weight that has kernels.
struct WeightKind {
  std::string name;
  Scheme scheme;
};
const std::vector<WeightKind>& weight_kinds();
// A number of columns that the scheme allows, near `k`.
int64_t allowed_columns(const Scheme& scheme, int64_t k);
std::string type_name(Float16Type type);

}  // namespace curvq
