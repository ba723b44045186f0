#include "hessian_kfac.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/pattern.h"
#include "curvq/report/numbers.h"
#include "curvq/report/table.h"

namespace curvq::cli {
namespace {

// Above it the eigenvalues of a factor take longer than making it.
constexpr int64_t kMostForEigenvalues = 1024;

// What is said of one layer's factors.
struct FactorRow {
  int64_t inputs = 0, outputs = 0, samples = 0;
  double trace_a = 0, trace_g = 0, trace = 0;
  KroneckerDamping damping;
  std::vector<double> range_a, range_g;  // smallest and largest eigenvalue, if known

  double largest() const { return range_a[1] * range_g[1]; }
  // Of the damped block.
  double condition() const {
    return (range_a[1] + damping.a) * (range_g[1] + damping.g) / (range_a[0] + damping.a) /
           (range_g[0] + damping.g);
  }
};

std::vector<double> eigenvalue_range(const torch::Tensor& factor) {
  const torch::Tensor values = torch::linalg_eigvalsh(factor.to(torch::kFloat64));
  return {values[0].item<double>(), values[-1].item<double>()};
}

class KfacRows {
 public:
  explicit KfacRows(double damping) : damping_(damping) {}

  void add(const LayerFactors& layer) {
    const KroneckerFactors& k = layer.factors;
    FactorRow row;
    row.inputs = k.a.size(0);
    row.outputs = k.g.size(0);
    row.samples = layer.num_inputs;
    row.trace_a = k.a.trace().item<double>();
    row.trace_g = k.g.trace().item<double>();
    row.trace = k.trace();
    row.damping = tikhonov_damping(k, damping_ * row.trace / (row.inputs * row.outputs));
    if (std::max(row.inputs, row.outputs) <= kMostForEigenvalues) {
      row.range_a = eigenvalue_range(k.a);
      row.range_g = eigenvalue_range(k.g);
    }
    rows_[layer.name] = row;
  }

  // `order`: names of the layers as they are shown.
  void show(const std::vector<std::string>& order, Output& output) const {
    using Align = Table::Align;
    Table table({{"layer"},
                 {"A", Align::kRight},
                 {"G", Align::kRight},
                 {"tr A", Align::kRight},
                 {"tr G", Align::kRight},
                 {"tr A tr G", Align::kRight},
                 {"largest eigenvalue", Align::kRight},
                 {"condition, damped", Align::kRight}});
    OrderedJson& layers = output.results()["layers"];
    if (layers.is_null()) layers = OrderedJson::array();
    for (const std::string& name : order) {
      const FactorRow& row = rows_.at(name);
      add_json(name, row, layers);
      const bool known = !row.range_a.empty();
      table.add_row({name, std::to_string(row.inputs), std::to_string(row.outputs),
                     number_text(row.trace_a), number_text(row.trace_g), number_text(row.trace),
                     known ? number_text(row.largest()) : "",
                     known ? number_text(row.condition(), 2) : ""});
    }
    output.text("\n" + table.str(output.color()));
  }

 private:
  static void add_json(const std::string& name, const FactorRow& row, OrderedJson& layers) {
    auto known = std::find_if(layers.begin(), layers.end(),
                              [&](const OrderedJson& layer) { return layer["name"] == name; });
    if (known == layers.end()) {
      layers.push_back({{"name", name}, {"parameters", row.inputs * row.outputs}});
      known = std::prev(layers.end());
    }
    OrderedJson& json = *known;
    json["trace_a"] = row.trace_a;
    json["trace_g"] = row.trace_g;
    json["kfac_trace"] = row.trace;
    json["samples"] = row.samples;
    json["damping"] = {{"a", row.damping.a}, {"g", row.damping.g}, {"pi", row.damping.pi}};
    if (row.range_a.empty()) return;
    json["eigenvalues_a"] = row.range_a;
    json["eigenvalues_g"] = row.range_g;
    json["kfac_top_eigenvalue"] = row.largest();
    json["condition"] = row.condition();
  }

  double damping_;  // share of a block's mean eigenvalue
  std::map<std::string, FactorRow> rows_;
};

// What the numbers are of, in the JSON and in words.
void state_factors(const KfacOptions& kfac, const Options& options,
                   const std::vector<std::string>& left_out, Output& output) {
  const auto samples = output.results()["samples"].get<int64_t>(),
             terms = output.results()["loss_terms"].get<int64_t>();
  const bool reduce = kfac.sharing == WeightSharing::kReduce;
  const std::string matrix = kfac.labels == KfacLabels::kData ? "empirical-fisher" : "fisher";
  OrderedJson& json = output.results()["kfac"];
  json = {
      {"matrix", matrix},
      {"labels", labels_name(kfac.labels)},
      {"label_draws", kfac.labels == KfacLabels::kSampled ? kfac.draws : 0},
      {"weight_sharing", reduce ? "reduce" : "expand"},
      {"reduction", "mean over loss terms"},
      {"samples", samples},
      {"loss_terms", terms},
      {"input_factor", reduce ? "mean over samples of m m^T, m the mean input over positions"
                              : "mean of a a^T over samples and positions"},
      {"output_factor",
       reduce ? "sum of s s^T over loss terms and draws, s the sum of gradients over positions, "
                "divided by their number"
              : "sum of g g^T over loss terms, draws and positions, divided by the number of "
                "terms and draws"},
      {"damping_share", options.number("damping")},
      {"left_out", left_out}};
  const std::string from =
      kfac.labels == KfacLabels::kData ? "the data's labels"
      : kfac.labels == KfacLabels::kExact
          ? "all labels"
          : format("%lld labels drawn a term", static_cast<long long>(kfac.draws));
  const bool alone = !output.results().contains("operator");
  if (alone) output.text(bold(options.positional("MODEL"), output.color()) + "\n");
  output.text(format("\nK-FAC factors of the %s matrix, mean over %s loss terms (%s samples), %s\n",
                     matrix.c_str(), with_separators(terms).c_str(),
                     with_separators(samples).c_str(), from.c_str()));
  if (!left_out.empty())
    log_warning(
        format("%zu parameters are of no linear or ungrouped 2-D convolutional layer and "
               "have no factors: %s%s",
               left_out.size(), left_out.front().c_str(), left_out.size() > 1 ? ", ..." : ""));
}

bool matches(const std::vector<std::string>& patterns, const LinearInfo& layer) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return pattern_matches(pattern, layer.name + ".weight");
  });
}

}  // namespace

void add_kfac_options(Options& options) {
  options
      .add_integer("label-draws", "N",
                   "kfac: labels drawn from the model's own distribution for each loss term; with "
                   "--exact it is summed over all labels instead",
                   1, 100000, 1)
      .add_choice(
          "weight-sharing", {"expand", "reduce"},
          "kfac: positions (pixels, tokens) of a sample are samples of their own, or inputs "
          "are averaged and gradients summed over them",
          "expand")
      .add_number("damping", "SHARE",
                  "kfac: of a block's mean eigenvalue, for its condition and damped factors", 0,
                  1e6, 0.01);
}

KfacOptions kfac_options(const Options& options) {
  KfacOptions kfac;
  kfac.labels = options.text("operator") == "empirical-fisher" ? KfacLabels::kData
                : options.flag("exact")                        ? KfacLabels::kExact
                                                               : KfacLabels::kSampled;
  kfac.draws = options.integer("label-draws");
  kfac.seed = static_cast<uint64_t>(options.integer("seed"));
  if (options.text("weight-sharing") == "reduce") kfac.sharing = WeightSharing::kReduce;
  return kfac;
}

std::string labels_name(KfacLabels labels) {
  return labels == KfacLabels::kSampled ? "sampled"
         : labels == KfacLabels::kExact ? "exact"
                                        : "data";
}

void compute_kfac(const Problem& problem, const Options& options, const Processes& processes,
                  Output& output, const LayerFactorsSink& sink) {
  KfacOptions kfac = kfac_options(options);
  kfac.first_sample = processes.first_sample();
  KfacRows rows(options.number("damping"));
  std::vector<std::string> order, left_out;
  for (LayerFactors& layer : kfac_factors(problem, kfac)) {
    processes.join(layer);
    rows.add(layer);
    order.push_back(layer.name);
    sink(std::move(layer));
  }
  for (const NamedTensor& parameter : problem.parameters()) {
    const std::string layer = parameter.name.substr(0, parameter.name.rfind('.'));
    if (std::find(order.begin(), order.end(), layer) == order.end())
      left_out.push_back(parameter.name);
  }
  state_factors(kfac, options, left_out, output);
  rows.show(order, output);
}

void compute_kfac(const DecoderModel& model, const Batch& tokens, const Options& options,
                  const Processes& processes, Output& output, const LayerFactorsSink& sink) {
  KfacOptions kfac = kfac_options(options);
  kfac.first_sample = processes.first_sample();
  if (kfac.sharing == WeightSharing::kReduce)
    throw UsageError(options.where("weight-sharing") +
                     " reduce: each token of a model directory has a loss term of its own");
  KfacRows rows(options.number("damping"));
  std::vector<std::string> order;
  for (const LinearInfo& layer : chosen_layers(model, options)) order.push_back(layer.name);
  const auto wanted = [&](const std::string& name) {
    return std::find(order.begin(), order.end(), name) != order.end();
  };
  kfac_factors(model, tokens, kfac, wanted, [&](LayerFactors layer) {
    processes.join(layer);
    rows.add(layer);
    sink(std::move(layer));
  });
  state_factors(kfac, options, {}, output);
  rows.show(order, output);
}

std::vector<LinearInfo> chosen_layers(const DecoderModel& model, const Options& options) {
  const std::vector<std::string> chosen = options.list("parameters"),
                                 ignored = options.list("ignore");
  const std::vector<LinearInfo> all = kfac_layers(model.config());
  for (const auto& patterns : {chosen, ignored}) {
    for (const std::string& pattern : patterns) {
      const auto& tensors = model.checkpoint().tensors();
      const bool known =
          std::any_of(all.begin(), all.end(),
                      [&](const LinearInfo& layer) { return matches({pattern}, layer); }) ||
          std::any_of(tensors.begin(), tensors.end(), [&](const TensorView* tensor) {
            return pattern_matches(pattern, tensor->name);
          });
      if (known) continue;
      throw UsageError("pattern '" + pattern + "' matches no parameter of " +
                       model.checkpoint().path() + "; the first linear layer is " +
                       all.front().name);
    }
  }
  std::vector<LinearInfo> layers;
  for (const LinearInfo& layer : all) {
    if ((chosen.empty() || matches(chosen, layer)) && !matches(ignored, layer))
      layers.push_back(layer);
  }
  if (layers.empty())
    throw UsageError("every linear layer of " + model.checkpoint().path() + " is left out");
  return layers;
}

}  // namespace curvq::cli
