#include "hessian_statistics.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/progress.h"
#include "curvq/curvature/block_structure.h"
#include "curvq/curvature/dense_spectrum.h"
#include "curvq/curvature/density.h"
#include "curvq/curvature/diagonal.h"
#include "curvq/curvature/eigen.h"
#include "curvq/curvature/trace.h"
#include "curvq/report/numbers.h"
#include "curvq/report/table.h"

namespace curvq::cli {
namespace {

// Moves a progress line on with each product.
class CountedOperator : public LinearOperator {
 public:
  CountedOperator(LinearOperator& op, const std::string& label, int64_t products)
      : op_(op), progress_(label, products) {}

  int64_t dimension() const override { return op_.dimension(); }
  torch::TensorOptions options() const override { return op_.options(); }
  torch::Tensor apply(const torch::Tensor& vectors) override {
    torch::Tensor products = op_.apply(vectors);
    progress_.advance(vectors.size(0));
    return products;
  }
  std::vector<Segment> segments() const override { return op_.segments(); }

 private:
  LinearOperator& op_;
  Progress progress_;
};

OrderedJson to_json(const Estimate& estimate) {
  return {
      {"value", estimate.value}, {"stderr", estimate.standard_error}, {"probes", estimate.samples}};
}

OrderedJson to_json(const torch::Tensor& values) {
  const torch::Tensor wide = values.to(torch::kFloat64).contiguous();
  if (wide.dim() == 1) {
    const double* begin = wide.data_ptr<double>();
    return std::vector<double>(begin, begin + wide.numel());
  }
  OrderedJson rows = OrderedJson::array();
  for (int64_t i = 0; i < wide.size(0); ++i) rows.push_back(to_json(wide[i]));
  return rows;
}

std::string with_error(double value, double error) {
  return number_text(value) + (error > 0 ? " +- " + number_text(error, 2) : "");
}

Estimate exact_value(double value) {
  Estimate estimate;
  estimate.value = value;
  estimate.standard_error = estimate.half_width = 0;
  return estimate;
}

// One run of the command. With --exact, `op_` is the whole matrix and products cost nothing.
class Statistics {
 public:
  Statistics(CurvatureOperator& op, const Options& options, Output& output)
      : options_(options),
        output_(output),
        exact_(options.flag("exact")),
        probes_(options.integer("probes")),
        generator_(make_generator(static_cast<uint64_t>(options.integer("seed")))),
        op_(&op) {
    for (const Segment& segment : op_->segments()) {
      rows_.push_back(OrderedJson{{"name", segment.name}, {"parameters", segment.size}});
    }
    if (!exact_) return;
    CountedOperator counted(*op_, "matrix", op_->dimension());
    matrix_ = to_dense(counted).to(torch::kFloat64);
    dense_ = std::make_unique<DenseOperator>(matrix_, op_->segments());
    op_ = dense_.get();
  }

  void trace();
  void diagonal();
  void eigen();
  void density();
  void blocks();
  // The table by layer, behind what the statistics have added to it.
  void finish();

 private:
  const Options& options_;
  Output& output_;
  bool exact_;
  int64_t probes_;
  torch::Generator generator_;
  LinearOperator* op_;
  torch::Tensor matrix_;  // with --exact, float64
  std::unique_ptr<DenseOperator> dense_;
  OrderedJson rows_ = OrderedJson::array();
};

void Statistics::trace() {
  const std::vector<Segment> segments = op_->segments();
  TraceResult result;
  if (exact_) {
    const torch::Tensor diagonal = matrix_.diagonal();
    result.trace = exact_value(diagonal.sum().item<double>());
    result.frobenius = exact_value(matrix_.norm().item<double>());
    for (const Segment& segment : segments) {
      const double part = diagonal.narrow(0, segment.offset, segment.size).sum().item<double>();
      result.segments.push_back({segment, exact_value(part)});
    }
  } else {
    TraceOptions trace_options;
    trace_options.probes = probes_;
    const bool own = options_.flag("probe-per-block");
    const int64_t products = probes_ * (own ? static_cast<int64_t>(segments.size()) : 1);
    CountedOperator counted(*op_, "trace", products);
    result = own ? segment_traces(counted, segments, trace_options, generator_)
                 : hutchinson_trace(counted, trace_options, generator_);
  }
  for (size_t i = 0; i < result.segments.size(); ++i)
    rows_[i]["trace"] = to_json(result.segments[i].trace);
  output_.results()["trace"] = to_json(result.trace);
  output_.text("trace " + with_error(result.trace.value, result.trace.standard_error));
  if (!std::isnan(result.frobenius.value)) {
    output_.results()["frobenius_norm"] = to_json(result.frobenius);
    output_.text(", Frobenius norm " +
                 with_error(result.frobenius.value, result.frobenius.standard_error));
  }
  output_.text("\n");
}

void Statistics::diagonal() {
  DiagonalResult result;
  if (exact_) {
    result.value = matrix_.diagonal();
    result.standard_error = torch::zeros_like(result.value);
  } else {
    CountedOperator counted(*op_, "diagonal", probes_);
    DiagonalOptions diagonal_options;
    diagonal_options.probes = probes_;
    result = hutchinson_diagonal(counted, diagonal_options, generator_);
  }
  const std::vector<Segment> segments = op_->segments();
  for (size_t i = 0; i < segments.size(); ++i) {
    const torch::Tensor part =
        result.value.narrow(0, segments[i].offset, segments[i].size).to(torch::kFloat64);
    const torch::Tensor error =
        result.standard_error.narrow(0, segments[i].offset, segments[i].size).to(torch::kFloat64);
    rows_[i]["diagonal"] = {{"mean", part.mean().item<double>()},
                            {"min", part.min().item<double>()},
                            {"max", part.max().item<double>()},
                            {"rms_stderr", error.square().mean().sqrt().item<double>()}};
  }
  // All entries where a reader of JSON can still hold them.
  constexpr int64_t kMostEntries = 100000;
  OrderedJson& json = output_.results()["diagonal"];
  json = {{"probes", exact_ ? 0 : probes_}};
  if (op_->dimension() <= kMostEntries) {
    json["values"] = to_json(result.value);
    json["stderr"] = to_json(result.standard_error);
  }
}

void Statistics::eigen() {
  const int64_t count = std::min(options_.integer("top-k"), op_->dimension());
  EigenResult result;
  if (exact_) {
    result = dense_eigenvalues(matrix_, count);
  } else {
    EigenOptions eigen_options;
    eigen_options.count = count;
    eigen_options.tolerance = options_.number("tol");
    eigen_options.max_products = options_.integer("max-products");
    CountedOperator counted(*op_, "eigenvalues", eigen_options.max_products);
    result = lanczos_eigenvalues(counted, eigen_options, generator_);
  }
  OrderedJson list = OrderedJson::array();
  using Align = Table::Align;
  Table table({{"eigenvalue", Align::kRight}, {"residual", Align::kRight}, {"", Align::kLeft}});
  for (const Eigenpair& pair : result.pairs) {
    list.push_back({{"value", pair.value},
                    {"residual", pair.residual},
                    {"error_bound", pair.error_bound},
                    {"iterations", result.iterations},
                    {"converged", pair.converged}});
    table.add_row({format("%.8g", pair.value), number_text(pair.residual, 2),
                   pair.converged ? "" : "not converged"});
  }
  output_.results()["top_eigenvalues"] = std::move(list);
  output_.text("\n" + table.str(output_.color()));
  if (!result.converged)
    log_warning("not all eigenvalues have converged; raise --max-products or --tol");
}

void Statistics::density() {
  DensityOptions density_options;
  density_options.steps = std::min(options_.integer("steps"), op_->dimension());
  density_options.probes = probes_;
  DensityResult result;
  if (exact_) {
    result = dense_density(matrix_, density_options);
  } else {
    CountedOperator counted(*op_, "density", probes_ * density_options.steps);
    result = spectral_density(counted, density_options, generator_);
  }
  output_.results()["density"] = {{"at", to_json(result.at)},
                                  {"density", to_json(result.density)},
                                  {"stderr", to_json(result.standard_error)},
                                  {"width", result.width},
                                  {"nodes", to_json(result.nodes)},
                                  {"weights", to_json(result.weights)},
                                  {"near_zero", result.near_zero},
                                  {"near_zero_mass", to_json(result.near_zero_mass)}};
  output_.text(
      format("\n%s of the eigenvalues lie within %s of zero, all between %s and %s\n",
             with_error(result.near_zero_mass.value, result.near_zero_mass.standard_error).c_str(),
             number_text(result.near_zero, 2).c_str(),
             number_text(result.nodes.min().item<double>()).c_str(),
             number_text(result.nodes.max().item<double>()).c_str()));
}

void Statistics::blocks() {
  const std::vector<Segment> segments = op_->segments();
  BlockNorms norms;
  if (exact_) {
    norms = exact_block_norms(*op_, segments);
  } else {
    CountedOperator counted(*op_, "blocks", probes_ * static_cast<int64_t>(segments.size()));
    norms = estimated_block_norms(counted, segments, probes_, ProbeKind::kRademacher, generator_);
  }
  OrderedJson names = OrderedJson::array();
  for (const Segment& segment : segments) names.push_back(segment.name);
  const Estimate ratio = norms.off_diagonal_ratio();
  output_.results()["blocks"] = {
      {"names", names},
      {"frobenius", to_json(norms.norm)},
      {"stderr", to_json(norms.standard_error)},
      {"off_diagonal_ratio", {{"value", ratio.value}, {"stderr", ratio.standard_error}}}};
  for (size_t i = 0; i < segments.size(); ++i)
    rows_[i]["block_norm"] = norms.norm[i][i].item<double>();
  output_.text("\nnorm outside of the diagonal blocks over that within: " +
               with_error(ratio.value, ratio.standard_error) + "\n");
}

void Statistics::finish() {
  using Align = Table::Align;
  std::vector<Table::Column> columns = {{"name"}, {"parameters", Align::kRight}};
  const bool traces = rows_[0].contains("trace"), diagonals = rows_[0].contains("diagonal"),
             norms = rows_[0].contains("block_norm");
  if (traces) {
    columns.push_back({"trace", Align::kRight});
    columns.push_back({"std. error", Align::kRight});
  }
  if (diagonals) {
    columns.push_back({"diagonal mean", Align::kRight});
    columns.push_back({"max", Align::kRight});
  }
  if (norms) columns.push_back({"block norm", Align::kRight});
  Table table(columns);
  const auto number = [](const OrderedJson& value) { return number_text(value.get<double>()); };
  for (const OrderedJson& row : rows_) {
    std::vector<std::string> cells = {row["name"].get<std::string>(),
                                      with_separators(row["parameters"].get<int64_t>())};
    if (traces) {
      cells.push_back(number(row["trace"]["value"]));
      cells.push_back(number_text(row["trace"]["stderr"].get<double>(), 2));
    }
    if (diagonals) {
      cells.push_back(number(row["diagonal"]["mean"]));
      cells.push_back(number(row["diagonal"]["max"]));
    }
    if (norms) cells.push_back(number(row["block_norm"]));
    table.add_row(cells);
  }
  if (traces || diagonals || norms) output_.text("\n" + table.str(output_.color()));
  output_.results()["layers"] = std::move(rows_);
}

}  // namespace

void check_statistics(const Problem& problem, const Options& options) {
  const int64_t n = problem.dimension();
  if (options.given("top-k") && options.integer("top-k") > n) {
    throw UsageError(format("%s %lld: there are %lld parameters", options.where("top-k").c_str(),
                            static_cast<long long>(options.integer("top-k")),
                            static_cast<long long>(n)));
  }
  // Above it the decomposition alone would take an hour.
  constexpr int64_t kMostParameters = 20000;
  if (options.flag("exact") && n > kMostParameters) {
    throw UsageError(
        format("--exact with %lld parameters; it is for at most %lld, choose some with "
               "--parameters",
               static_cast<long long>(n), static_cast<long long>(kMostParameters)));
  }
}

void compute_statistics(CurvatureOperator& op, const std::vector<std::string>& what,
                        const Options& options, Output& output) {
  Statistics statistics(op, options, output);
  for (const std::string& name : what) {
    if (name == "trace") statistics.trace();
    if (name == "diagonal") statistics.diagonal();
    if (name == "eigen") statistics.eigen();
    if (name == "density") statistics.density();
    if (name == "blocks") statistics.blocks();
  }
  statistics.finish();
}

}  // namespace curvq::cli
