#include "gpu_check_cases.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "conformance.h"

namespace curvq {

std::string CheckCase::name() const {
  return kind.name + " " + type_name(type) + " " + std::to_string(product.m) + "x" +
         std::to_string(product.n) + "x" + std::to_string(product.k) +
         (product.pair ? " pair" : "") + (product.bias ? " bias" : "") +
         (product.exact ? " exact" : "");
}

std::vector<CheckCase> check_cases(bool small) {
  std::vector<CheckCase> cases;
  const std::vector<Product> few = {
      {.m = 3, .n = 40, .k = 1088, .bias = true, .splits = 0},
      {.m = 13, .n = 136, .k = 320, .pair = true, .splits = 0},
      {.m = 70, .n = 72, .k = 192, .exact = true, .splits = 0, .ldout = 77}};
  std::vector<Product> many = few;
  for (const int64_t m : {1, 8, 16, 33, 64, 96, 200})
    for (const bool exact : {false, true})
      many.push_back({.m = m,
                      .n = 300,
                      .k = exact ? 1000 : 4200,
                      .pair = !exact && m % 2 == 0,
                      .bias = m % 3 == 0,
                      .exact = exact,
                      .splits = 0,
                      .seed = static_cast<int>(m)});
  for (const WeightKind& kind : weight_kinds())
    for (const Float16Type type : {Float16Type::kBFloat16, Float16Type::kFloat16})
      for (Product product : small ? few : many) {
        product.k = allowed_columns(kind.scheme, product.k);
        cases.push_back({kind, type, product});
      }
  return cases;
}

std::string problem_of(const CheckCase& c, const Comparison& comparison, bool repeats) {
  if (!(comparison.worst <= 1))
    return "off by " + std::to_string(comparison.worst) + " times the bound";
  if (c.product.exact && comparison.differing != 0)
    return std::to_string(comparison.differing) + " integers are not exact";
  if (comparison.overrun != 0)
    return std::to_string(comparison.overrun) + " elements behind rows of out were written";
  if (!repeats) return "a second run gave other bytes";
  return "";
}

W4A16Weight repeated_weight(const Scheme& scheme, Float16Type type, int64_t n, int64_t k) {
  std::mt19937 random(1);
  W4A16Weight weight = pack_w4a16(random_codes(scheme, 128, k, false, random), type);
  const int64_t times = (n + 127) / 128;
  for (std::vector<uint8_t>* bytes : {&weight.codes, &weight.meta}) {
    const size_t once = bytes->size();
    bytes->resize(once * static_cast<size_t>(times));
    for (int64_t i = 1; i < times; ++i)
      std::copy_n(bytes->begin(), once, bytes->begin() + static_cast<int64_t>(once) * i);
  }
  weight.rows = n;
  weight.row_blocks = 4 * times;
  return weight;
}

ConformanceDifference compare_conformance(const std::vector<uint32_t>& emulated,
                                          const std::vector<uint32_t>& device) {
  using namespace simt;
  ConformanceDifference difference;
  double largest = 0;
  for (size_t i = 0; i < emulated.size(); ++i) {
    const int at = static_cast<int>(i % kConformanceOut);
    if (at >= kRoundedFirst && at <= kRoundedLast)
      largest = std::max(largest, std::abs(static_cast<double>(std::bit_cast<float>(emulated[i]))));
  }
  for (size_t i = 0; i < emulated.size(); ++i) {
    const int at = static_cast<int>(i % kConformanceOut);
    bool same = i < device.size() && emulated[i] == device[i];
    if (!same && i < device.size() && at >= kRoundedFirst && at <= kRoundedLast)
      same = std::abs(static_cast<double>(std::bit_cast<float>(emulated[i])) -
                      std::bit_cast<float>(device[i])) <= 0x1p-20 * largest;
    if (same) continue;
    if (difference.words++ < 8)
      difference.text += "lane " + std::to_string(i / kConformanceOut) + " result " +
                         std::to_string(at) + " differs; ";
  }
  if (difference.words == 0) difference.text = "all operations as emulated";
  return difference;
}

}  // namespace curvq
