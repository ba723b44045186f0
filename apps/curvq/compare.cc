// curvq compare: two checkpoints, tensor by tensor.
#include "curvq/eval/compare.h"

#include <algorithm>

#include "commands.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/tensor.h"
#include "curvq/report/numbers.h"
#include "curvq/report/table.h"

namespace curvq::cli {
namespace {

OrderedJson to_json(const TensorError& error) {
  return {{"elements", error.elements},
          {"relative_error", error.relative_error},
          {"max_abs_error", error.max_abs_error},
          {"cosine", error.cosine},
          {"sqnr_db", error.sqnr_db}};
}

OrderedJson to_json(const TensorComparison& tensor) {
  OrderedJson json = {{"name", tensor.name},
                      {"shape", tensor.shape},
                      {"format_a", tensor.format_a},
                      {"format_b", tensor.format_b},
                      {"identical", tensor.identical}};
  json.update(to_json(tensor.error));
  return json;
}

OrderedJson to_json(const Comparison& comparison) {
  OrderedJson json;
  json["compared"] = comparison.tensors.size();
  json["identical"] = comparison.num_identical;
  json["total"] = to_json(comparison.total);
  json["quantized"] = to_json(comparison.quantized);
  json["only_in_a"] = comparison.only_in_a;
  json["only_in_b"] = comparison.only_in_b;
  json["shape_mismatches"] = OrderedJson::array();
  for (const ShapeMismatch& mismatch : comparison.shape_mismatches) {
    json["shape_mismatches"].push_back(
        {{"name", mismatch.name}, {"shape_a", mismatch.shape_a}, {"shape_b", mismatch.shape_b}});
  }
  json["tensors"] = OrderedJson::array();
  for (const TensorComparison& tensor : comparison.tensors)
    json["tensors"].push_back(to_json(tensor));
  return json;
}

// Largest errors first; NaN before everything.
void sort_tensors(std::vector<TensorComparison>* tensors, const std::string& by) {
  if (by == "name") return;
  const auto badness = [&](const TensorComparison& tensor) {
    const double value = by == "relative" ? tensor.error.relative_error
                         : by == "max"    ? tensor.error.max_abs_error
                                          : -tensor.error.cosine;
    return value == value ? value : std::numeric_limits<double>::infinity();
  };
  std::stable_sort(tensors->begin(), tensors->end(),
                   [&](const auto& a, const auto& b) { return badness(a) > badness(b); });
}

std::vector<std::string> error_cells(const TensorError& error) {
  return {number_text(error.relative_error), number_text(error.max_abs_error),
          number_text(error.cosine, 6), number_text(error.sqnr_db)};
}

std::string to_text(const Comparison& comparison, int64_t limit, bool color) {
  using Align = Table::Align;
  Table table({{"tensor"},
               {"shape", Align::kRight},
               {"A"},
               {"B"},
               {"relative error", Align::kRight},
               {"max error", Align::kRight},
               {"cosine", Align::kRight},
               {"SQNR dB", Align::kRight}});
  const auto add = [&](std::vector<std::string> row, const TensorError& error) {
    for (std::string& cell : error_cells(error)) row.push_back(std::move(cell));
    table.add_row(std::move(row));
  };
  const int64_t count = static_cast<int64_t>(comparison.tensors.size());
  const int64_t shown = limit == 0 ? count : std::min(limit, count);
  for (int64_t i = 0; i < shown; ++i) {
    const TensorComparison& tensor = comparison.tensors[i];
    add({tensor.name, shape_string(tensor.shape), tensor.format_a, tensor.format_b}, tensor.error);
  }
  if (shown < count)
    table.add_row({format("... and %lld more", static_cast<long long>(count - shown)), "", "", "",
                   "", "", "", ""});
  table.add_rule();
  if (comparison.quantized.elements > 0) add({"all quantized", "", "", ""}, comparison.quantized);
  add({"all", "", "", ""}, comparison.total);

  std::string out = table.str(color) + "\n";
  out += format("%lld tensors compared, %lld identical\n", static_cast<long long>(count),
                static_cast<long long>(comparison.num_identical));
  for (const ShapeMismatch& mismatch : comparison.shape_mismatches) {
    out += "shapes differ: " + mismatch.name + ": A " + shape_string(mismatch.shape_a) + ", B " +
           shape_string(mismatch.shape_b) + "\n";
  }
  for (const std::string& name : comparison.only_in_a) out += "only in A: " + name + "\n";
  for (const std::string& name : comparison.only_in_b) out += "only in B: " + name + "\n";
  return out;
}

void declare(Options& options) {
  options
      .add_positional("A",
                      "the reference: a model directory, a bare .safetensors or a TorchScript .pt")
      .add_positional("B", "the same model, quantized or not")
      .add_choice("sort", {"name", "relative", "max", "cosine"},
                  "order of the tensors; the worst come first, except by name", "name")
      .add_integer("limit", "N", "rows of the table; 0: all (the JSON always has all)", 0,
                   INT64_MAX, 0)
      .add_threads()
      .add_example("compare Llama-3.2-1B Llama-3.2-1B-NVFP4 --sort relative --limit 10");
}

int run(const Options& options, Output& output) {
  const std::string &a = options.positional("A"), &b = options.positional("B");
  Comparison comparison = compare_checkpoints(a, b);
  sort_tensors(&comparison.tensors, options.text("sort"));
  output.add_checkpoint("a", a);
  output.add_checkpoint("b", b);
  output.results() = to_json(comparison);
  output.text(to_text(comparison, options.integer("limit"), output.color()));
  return 0;
}

}  // namespace

const Command kCompareCommand = {"compare", "tensor by tensor error, several measures", declare,
                                 run};

}  // namespace curvq::cli
