#include "eval_script.h"

#include <cmath>
#include <optional>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/eval/evaluate_script.h"
#include "curvq/io/model_files.h"
#include "curvq/report/table.h"
#include "eval_bounds.h"
#include "labelled_data.h"

namespace curvq::cli {
namespace {

OrderedJson results_json(const ScriptEvalResult& r) {
  OrderedJson json = {{"samples", r.samples},
                      {"terms", r.terms},
                      {"loss", r.classifies ? "cross_entropy" : "mse"},
                      {"loss_value", r.loss},
                      {"loss_stderr", r.loss_stderr}};
  if (r.classifies) json["accuracy"] = r.accuracy;
  if (!r.has_reference) return json;
  json["reference_loss"] = r.reference_loss;
  if (r.classifies) {
    json["kl_mean"] = r.kl_mean;
    json["kl_stderr"] = r.kl_stderr;
    json["top1_agreement"] = r.top1_agreement;
  } else {
    json["squared_difference"] = r.squared_difference;
  }
  return json;
}

std::string results_text(const ScriptEvalResult& r, bool color) {
  using Align = Table::Align;
  Table table({{"measure"}, {"value", Align::kRight}, {"std. error", Align::kRight}});
  const auto row = [&](const char* name, double value, double error = std::nan("")) {
    table.add_row({name, format("%.6g", value), std::isnan(error) ? "" : format("%.2g", error)});
  };
  row(r.classifies ? "cross entropy, nats" : "squared error, mean over outputs", r.loss,
      r.loss_stderr);
  if (r.classifies) row("accuracy", r.accuracy);
  if (r.has_reference) {
    row("the reference's", r.reference_loss);
    if (r.classifies) {
      row("KL(reference || model), nats", r.kl_mean, r.kl_stderr);
      row("top-1 agreement", r.top1_agreement);
    } else {
      row("squared difference from the reference", r.squared_difference);
    }
  }
  return table.str(color) + format("%lld terms of %lld samples\n", static_cast<long long>(r.terms),
                                   static_cast<long long>(r.samples));
}

// The keys of results that are numbers, for --fail-if; which of them there are is known with y.
std::vector<Bound> read_bounds(const Options& options, bool classifies) {
  ScriptEvalResult result;
  result.classifies = classifies;
  OrderedJson plain = results_json(result);
  plain.erase("loss");
  result.has_reference = true;
  OrderedJson with_reference = results_json(result);
  with_reference.erase("loss");
  return parse_bounds(options, plain, with_reference);
}

}  // namespace

int eval_script(const Options& options, Output& output) {
  for (const char* name : {"engine", "embeddings", "max-length"}) {
    if (options.given(name))
      throw UsageError(options.where(name) + " has no meaning for a TorchScript file");
  }
  const std::string path = options.positional("MODEL");
  const SafetensorsFile file = open_samples(options, "data");
  const Batch data = load_xy(file, options);
  const std::vector<Bound> bounds = read_bounds(options, !data.targets.is_floating_point());
  const ScriptModel model(path);
  std::optional<ScriptModel> reference;
  if (options.has("reference")) reference.emplace(options.text("reference"));
  output.add_checkpoint("model", path);
  if (reference) output.add_checkpoint("reference", reference->path());
  output.inputs()["data"] = describe(file, data.inputs.size(0));
  const ScriptEvalResult result =
      evaluate_script(model, data.inputs, data.targets, reference ? &*reference : nullptr);
  output.results() = results_json(result);
  output.text(results_text(result, output.color()));
  return check_bounds(bounds, output.results());
}

}  // namespace curvq::cli
