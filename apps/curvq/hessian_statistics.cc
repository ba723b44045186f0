#include "hessian_statistics.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "counted_operator.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/curvature/block_structure.h"
#include "curvq/curvature/dense_spectrum.h"
#include "curvq/curvature/density.h"
#include "curvq/curvature/diagonal.h"
#include "curvq/curvature/eigen.h"
#include "curvq/curvature/trace.h"
#include "curvq/report/numbers.h"
#include "curvq/report/table.h"
#include "statistics_json.h"

namespace curvq::cli {
namespace {

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
  Statistics(LinearOperator& op, const Options& options, Output& output)
      : options_(options),
        output_(output),
        exact_(options.flag("exact")),
        probes_(options.integer("probes")),
        generator_(make_generator(static_cast<uint64_t>(options.integer("seed")))),
        op_(&op) {
    for (const Segment& segment : op_->segments()) {
      rows_.push_back(OrderedJson{{"name", segment.name}, {"parameters", segment.size}});
      known_.emplace_back();
      known_.back().name = segment.name;
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
  void block_eigenvalues();
  void density();
  void blocks();
  // The table by layer, behind what the statistics have added to it; what is known of the layers.
  std::vector<LayerCurvature> finish();

 private:
  EigenOptions eigen_options(int64_t count) const {
    EigenOptions eigen_options;
    eigen_options.count = count;
    eigen_options.tolerance = options_.number("tol");
    eigen_options.max_products = options_.integer("max-products");
    return eigen_options;
  }

  const Options& options_;
  Output& output_;
  bool exact_;
  int64_t probes_;
  torch::Generator generator_;
  LinearOperator* op_;
  torch::Tensor matrix_;  // with --exact, float64
  std::unique_ptr<DenseOperator> dense_;
  OrderedJson rows_ = OrderedJson::array();
  std::vector<LayerCurvature> known_;  // diagonals as stretches of the parameter vector
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
    trace_options.deflate = options_.integer("deflate");
    const bool own = options_.flag("probe-per-block");
    const int64_t products =
        own ? probes_ * static_cast<int64_t>(segments.size()) : probes_ + trace_options.deflate;
    CountedOperator counted(*op_, "trace", products);
    result = own ? segment_traces(counted, segments, trace_options, generator_)
                 : hutchinson_trace(counted, trace_options, generator_);
    if (!own) output_.results()["convergence"]["trace"] = running_means(result.samples, "trace");
  }
  for (size_t i = 0; i < result.segments.size(); ++i) {
    rows_[i]["trace"] = to_json(result.segments[i].trace);
    known_[i].trace = result.segments[i].trace.value;
    if (!exact_) known_[i].trace_stderr = result.segments[i].trace.standard_error;
  }
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
    counted.keep_forms();
    result = hutchinson_diagonal(counted, diagonal_options, generator_);
    output_.results()["convergence"]["diagonal"] = running_means(
        counted.forms() / static_cast<double>(op_->dimension()), "mean of the diagonal");
  }
  const std::vector<Segment> segments = op_->segments();
  for (size_t i = 0; i < segments.size(); ++i) {
    const torch::Tensor part =
        result.value.narrow(0, segments[i].offset, segments[i].size).to(torch::kFloat64);
    known_[i].diagonal = part;
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
    EigenOptions eigen_options = this->eigen_options(count);
    std::vector<double> at, value, bound;
    eigen_options.observe = [&](int64_t products, const std::vector<Eigenpair>& pairs) {
      if (!std::isfinite(pairs.front().error_bound)) return;
      at.push_back(static_cast<double>(products));
      value.push_back(pairs.front().value);
      bound.push_back(pairs.front().error_bound);
    };
    CountedOperator counted(*op_, "eigenvalues", eigen_options.max_products);
    result = lanczos_eigenvalues(counted, eigen_options, generator_);
    output_.results()["convergence"]["eigen"] = {{"of", "eigenvalue of largest magnitude"},
                                                 {"by", "products"},
                                                 {"at", at},
                                                 {"value", value},
                                                 {"half_width", bound}};
  }
  OrderedJson list = OrderedJson::array();
  using Align = Table::Align;
  Table table({{"eigenvalue", Align::kRight}, {"residual", Align::kRight}, {"", Align::kLeft}});
  for (const Eigenpair& pair : result.pairs) {
    list.push_back(to_json(pair, result.iterations));
    table.add_row({format("%.8g", pair.value), number_text(pair.residual, 2),
                   pair.converged ? "" : "not converged"});
  }
  output_.results()["top_eigenvalues"] = std::move(list);
  output_.text("\n" + table.str(output_.color()));
  if (!result.converged)
    log_warning("not all eigenvalues have converged; raise --max-products or --tol");
  if (exact_ || options_.flag("eigen-per-block")) block_eigenvalues();
}

void Statistics::block_eigenvalues() {
  const std::vector<Segment> segments = op_->segments();
  bool converged = true;
  for (size_t i = 0; i < segments.size(); ++i) {
    const int64_t count = std::min(options_.integer("top-k"), segments[i].size);
    EigenResult result;
    if (exact_) {
      const Segment& s = segments[i];
      result =
          dense_eigenvalues(matrix_.narrow(0, s.offset, s.size).narrow(1, s.offset, s.size), count);
    } else {
      BlockOperator block(*op_, segments[i]);
      const EigenOptions eigen_options = this->eigen_options(count);
      CountedOperator counted(block, "eigenvalues of " + segments[i].name,
                              eigen_options.max_products);
      result = lanczos_eigenvalues(counted, eigen_options, generator_);
    }
    OrderedJson list = OrderedJson::array();
    std::vector<double> values;
    for (const Eigenpair& pair : result.pairs) {
      list.push_back(to_json(pair, result.iterations));
      values.push_back(pair.value);
    }
    rows_[i]["top_eigenvalues"] = std::move(list);
    known_[i].eigenvalues = torch::tensor(values, torch::kFloat64);
    converged = converged && result.converged;
  }
  if (!converged)
    log_warning("not all eigenvalues of blocks have converged; raise --max-products or --tol");
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
    const torch::Tensor near =
        result.weights.masked_fill(result.nodes.abs() > result.near_zero, 0).sum(1);
    output_.results()["convergence"]["density"] =
        running_means(near, "share of eigenvalues near zero");
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

std::vector<LayerCurvature> Statistics::finish() {
  using Align = Table::Align;
  std::vector<Table::Column> columns = {{"name"}, {"parameters", Align::kRight}};
  const bool traces = rows_[0].contains("trace"), diagonals = rows_[0].contains("diagonal"),
             eigenvalues = rows_[0].contains("top_eigenvalues"),
             norms = rows_[0].contains("block_norm");
  if (traces) {
    columns.push_back({"trace", Align::kRight});
    columns.push_back({"std. error", Align::kRight});
  }
  if (diagonals) {
    columns.push_back({"diagonal mean", Align::kRight});
    columns.push_back({"max", Align::kRight});
  }
  if (eigenvalues) columns.push_back({"top eigenvalue", Align::kRight});
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
    if (eigenvalues) cells.push_back(number(row["top_eigenvalues"][0]["value"]));
    if (norms) cells.push_back(number(row["block_norm"]));
    table.add_row(cells);
  }
  if (traces || diagonals || eigenvalues || norms) output_.text("\n" + table.str(output_.color()));
  output_.results()["layers"] = std::move(rows_);
  return std::move(known_);
}

}  // namespace

void check_statistics(const Problem& problem, const std::vector<std::string>& what,
                      const Options& options) {
  const int64_t n = problem.dimension();
  if (options.given("top-k") && options.integer("top-k") > n) {
    throw UsageError(format("%s %lld: there are %lld parameters", options.where("top-k").c_str(),
                            static_cast<long long>(options.integer("top-k")),
                            static_cast<long long>(n)));
  }
  if (options.flag("probe-per-block") && options.integer("deflate") > 0)
    throw UsageError(options.where("deflate") + " has no part in --probe-per-block");
  // Above it the decomposition alone would take an hour.
  constexpr int64_t kMostParameters = 20000;
  const bool only_kfac = what == std::vector<std::string>{"kfac"};
  if (options.flag("exact") && !only_kfac && n > kMostParameters) {
    throw UsageError(
        format("--exact with %lld parameters; it is for at most %lld, choose some with "
               "--parameters",
               static_cast<long long>(n), static_cast<long long>(kMostParameters)));
  }
}

std::vector<LayerCurvature> compute_statistics(LinearOperator& op,
                                               const std::vector<std::string>& what,
                                               const Options& options, Output& output) {
  Statistics statistics(op, options, output);
  for (const std::string& name : what) {
    if (name == "trace") statistics.trace();
    if (name == "diagonal") statistics.diagonal();
    if (name == "eigen") statistics.eigen();
    if (name == "density") statistics.density();
    if (name == "blocks") statistics.blocks();
  }
  return statistics.finish();
}

}  // namespace curvq::cli
