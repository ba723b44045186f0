// What gpu_check asks of the kernels; tried on the emulator by the tests.
#pragma once

#include <string>
#include <vector>

#include "products.h"

namespace curvq {

struct CheckCase {
  WeightKind kind;
  Float16Type type;
  Product product;
  std::string name() const;
};
// Every kind of weight, both types, every tile, ragged and whole, exact and random, pairs and
// bias. `small`: few, for tools that slow kernels down.
std::vector<CheckCase> check_cases(bool small);

// Empty, or what is wrong with an output. `repeats`: a second run gave the same bytes.
std::string problem_of(const CheckCase& c, const Comparison& comparison, bool repeats);

// A weight of n x k from one of 128 rows, over and over: packing a large one takes long.
W4A16Weight repeated_weight(const Scheme& scheme, Float16Type type, int64_t n, int64_t k);

struct ConformanceDifference {
  int words = 0;
  std::string text;
};
// Of what the operations of simt.h return: all bits, but for products of general numbers those of
// the rounding, 2^-20 of the largest.
ConformanceDifference compare_conformance(const std::vector<uint32_t>& emulated,
                                          const std::vector<uint32_t>& device);

}  // namespace curvq
