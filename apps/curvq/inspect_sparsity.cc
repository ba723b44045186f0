#include "inspect_sparsity.h"

#include <algorithm>

#include "curvq/core/log.h"
#include "curvq/formats/sparse_sizes.h"
#include "curvq/report/numbers.h"
#include "curvq/report/table.h"

namespace curvq::cli {
namespace {

struct Zeros {
  int64_t nonzeros = 0;
  bool two_four = false;
};

Zeros count_zeros(const StoredTensors& tensors, const StoredTensor& tensor) {
  const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
  const StoredTensors::Reader reader(tensors, tensor);
  Zeros zeros{0, cols % 4 == 0};
  std::vector<float> row(cols);
  for (int64_t r = 0; r < rows; ++r) {
    reader.read(r * cols, (r + 1) * cols, row.data());
    for (int64_t begin = 0; begin < cols; begin += 4) {
      int64_t count = 0;
      for (int64_t c = begin; c < std::min(cols, begin + 4); ++c) count += row[c] != 0;
      zeros.nonzeros += count;
      zeros.two_four = zeros.two_four && count <= 2;
    }
  }
  tensors.release(tensor);
  return zeros;
}

int64_t value_bits(const StoredTensor& tensor) {
  return tensor.scheme ? tensor.scheme->bits
                       : 8 * static_cast<int64_t>(dtype_bytes(tensor.parts[0]->dtype));
}

std::string cell(int64_t bytes, int64_t dense) {
  if (bytes < 0) return "";
  return bytes_text(bytes) + (bytes < dense ? "" : " (more)");
}

}  // namespace

void report_sparsity(const StoredTensors& tensors, Output& output) {
  using Align = Table::Align;
  Table table({{"matrix"},
               {"zeros", Align::kRight},
               {"2:4"},
               {"dense", Align::kRight},
               {"CSR", Align::kRight},
               {"bitmask", Align::kRight},
               {"2:4 packed", Align::kRight}});
  OrderedJson rows = OrderedJson::array();
  SparseSizes total;
  int64_t elements = 0, nonzeros = 0;
  // Where each layout starts to pay, by bits of a value: from the largest matrix that has them.
  std::map<int64_t, std::pair<int64_t, SparseSizes>> pays;
  for (const StoredTensor& tensor : tensors.tensors()) {
    if (tensor.shape.size() != 2 || tensor.num_elements() == 0) continue;
    if (!tensor.scheme && !is_floating_point(tensor.parts[0]->dtype)) continue;
    const Zeros zeros = count_zeros(tensors, tensor);
    const int64_t bits = value_bits(tensor), count = tensor.num_elements();
    const SparseSizes sizes =
        sparse_sizes(tensor.shape[0], tensor.shape[1], zeros.nonzeros, bits, zeros.two_four);
    auto& [largest, at] = pays[bits];
    if (count > largest) largest = count, at = sizes;
    elements += count;
    nonzeros += zeros.nonzeros;
    total.dense += sizes.dense;
    total.csr += std::min(sizes.csr, sizes.dense);
    total.bitmask += std::min(sizes.bitmask, sizes.dense);
    total.two_four += zeros.two_four ? sizes.two_four : sizes.dense;
    const double density = static_cast<double>(zeros.nonzeros) / static_cast<double>(count);
    rows.push_back({{"name", tensor.name},
                    {"density", density},
                    {"two_four", zeros.two_four},
                    {"dense_bytes", sizes.dense},
                    {"csr_bytes", sizes.csr},
                    {"bitmask_bytes", sizes.bitmask},
                    {"csr_pays_below", sizes.csr_density},
                    {"bitmask_pays_below", sizes.bitmask_density}});
    if (zeros.two_four) rows.back()["two_four_bytes"] = sizes.two_four;
    table.add_row({tensor.name, format("%.2f %%", 100 * (1 - density)),
                   zeros.two_four ? "yes" : "no", bytes_text(sizes.dense),
                   cell(sizes.csr, sizes.dense), cell(sizes.bitmask, sizes.dense),
                   cell(sizes.two_four, sizes.dense)});
  }
  table.add_rule();
  table.add_row({"best of each and dense",
                 format("%.2f %%", elements ? 100.0 * (elements - nonzeros) / elements : 0.0), "",
                 bytes_text(total.dense), bytes_text(total.csr), bytes_text(total.bitmask),
                 bytes_text(total.two_four)});
  std::string text = "\n" + table.str(output.color());
  for (const auto& [bits, pay] : pays) {
    text += format(
        "%lld-bit values: CSR is smaller than dense below %.1f %% density, a bitmask "
        "below %.1f %%, 2:4 always (%.1f %% of dense)\n",
        static_cast<long long>(bits), 100 * std::max(0.0, pay.second.csr_density),
        100 * std::max(0.0, pay.second.bitmask_density), 50 * (1 + 2.0 / bits));
  }
  output.results()["sparsity"] = {
      {"elements", elements},           {"nonzeros", nonzeros},
      {"dense_bytes", total.dense},     {"csr_bytes", total.csr},
      {"bitmask_bytes", total.bitmask}, {"two_four_bytes", total.two_four},
      {"matrices", std::move(rows)}};
  output.text(text);
}

}  // namespace curvq::cli
