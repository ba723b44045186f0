#include "quantize_report.h"

#include <cmath>

#include "capture_options.h"
#include "curvq/compress/mask_file.h"
#include "curvq/core/log.h"
#include "curvq/report/numbers.h"
#include "curvq/report/table.h"

namespace curvq::cli {

OrderedJson quantize_results_json(const QuantizeReport& report, const QuantizeOptions& options) {
  OrderedJson json = OrderedJson::object();
  json["rounding"] = {{"method", options.method == Method::kRtn ? "rtn" : "gptq"},
                      {"scale_search", options.gptq.search_scales},
                      {"sweeps", options.refine.sweeps},
                      {"token_weights", options.token_weights ? "gradient" : "none"},
                      {"output_factor", options.output_factor ? "fisher" : "none"},
                      {"held_out", options.held_out},
                      {"input_correction", options.input_correction},
                      {"residual_correction", options.residual_correction},
                      {"activations", activations_name(options.calibration_activations())}};
  if (options.prune) {
    json["pruning"] = {{"method", method_name(options.prune->method)},
                       {"pattern", options.prune->pattern.describe()},
                       {"sweeps", options.prune->sweeps}};
    json["masks"] = kMaskFile;
  }
  json["layers"] = OrderedJson::array();
  for (const LayerResult& layer : report.layers) {
    OrderedJson row = {{"name", layer.name},
                       {"scheme", layer.scheme},
                       {"shape", {layer.rows, layer.cols}},
                       {"bits_per_weight", layer.bits_per_weight},
                       {"relative_error", layer.relative_error},
                       {"rtn_relative_error", layer.rtn_relative_error},
                       {"damping", layer.damping},
                       {"dead_inputs", layer.dead_inputs},
                       {"seconds", layer.seconds}};
    if (layer.tokens) row["tokens"] = *layer.tokens;
    row["steps"] = OrderedJson::array();
    for (const RoundingStep& step : layer.steps) {
      row["steps"].push_back({{"step", step.name}, {"calibration", step.calibration}});
      if (step.held_out) row["steps"].back()["held_out"] = *step.held_out;
    }
    if (layer.shrinkage) row["shrinkage"] = *layer.shrinkage;
    if (layer.held_out) {
      row["held_out_error"] = {{"rtn", layer.held_out->rtn},
                               {"gptq", layer.held_out->gptq},
                               {"kept", layer.held_out->kept}};
    }
    if (options.prune) {
      row["sparsity"] = layer.sparsity;
      row["pruned_relative_error"] = layer.pruned_relative_error;
    }
    if (!layer.note.empty()) row["note"] = layer.note;
    json["layers"].push_back(std::move(row));
  }
  json["kept"] = kept_json(report.kept);
  json["original_bytes"] = report.original_bytes;
  json["stored_bytes"] = report.stored_bytes;
  json["quantized_weights"] = report.quantized_weights;
  json["quantized_bytes"] = report.quantized_bytes;
  json["calibration_tokens"] = report.calibration_tokens;
  json["predicted_peak_bytes"] = report.predicted_peak_bytes;
  if (report.predicted_time) {
    json["predicted_seconds"] = report.predicted_time->seconds;
    json["predicted_cpu_seconds"] = report.predicted_time->cpu_seconds;
  }
  json["capture_seconds"] = report.capture_seconds;
  json["solve_seconds"] = report.solve_seconds;
  json["total_seconds"] = report.total_seconds;
  return json;
}

std::string quantize_results_text(const QuantizeReport& report, const QuantizeOptions& options,
                                  bool color) {
  using Align = Table::Align;
  Table table({{"layer", Align::kLeft},
               {"shape", Align::kRight},
               {"scheme", Align::kLeft},
               {"bits", Align::kRight},
               {"error", Align::kRight},
               {"rtn error", Align::kRight},
               {"ratio", Align::kRight},
               {"note", Align::kLeft}});
  double log_ratio = 0;
  int64_t ratios = 0;
  for (const LayerResult& layer : report.layers) {
    const double ratio = layer.relative_error / layer.rtn_relative_error;
    if (std::isfinite(ratio) && ratio > 0) log_ratio += std::log(ratio), ++ratios;
    const bool known = !std::isnan(layer.relative_error);
    table.add_row({layer.name,
                   format("%lld x %lld", static_cast<long long>(layer.rows),
                          static_cast<long long>(layer.cols)),
                   layer.scheme, format("%.3f", layer.bits_per_weight),
                   known ? number_text(layer.relative_error, 3) : "",
                   known ? number_text(layer.rtn_relative_error, 3) : "",
                   known && std::isfinite(ratio) ? format("%.2f", ratio) : "", layer.note});
  }
  std::string out = table.str(color);
  for (const PlannedLayer& layer : report.kept)
    out += "kept " + layer.name + ": " + layer.reason + "\n";
  out += format("\n%zu layers, %s weights at %.3f bits; checkpoint %s (original %s)\n",
                report.layers.size(), count_text(report.quantized_weights).c_str(),
                8.0 * report.quantized_bytes / report.quantized_weights,
                bytes_text(report.stored_bytes).c_str(), bytes_text(report.original_bytes).c_str());
  if (options.dry_run) {
    out += format("nothing written (--dry-run); about %s of tensors would be in memory\n",
                  bytes_text(report.predicted_peak_bytes).c_str());
    if (report.predicted_time) {
      out += format(
          "it would take about %s (%s of processor time), an estimate from a block and "
          "small layers tried just now\n",
          seconds_text(report.predicted_time->seconds).c_str(),
          seconds_text(report.predicted_time->cpu_seconds).c_str());
    }
    return out;
  }
  if (options.method == Method::kGptq && ratios > 0) {
    out += format("layer error of gptq over round to nearest, geometric mean: %.3f\n",
                  std::exp(log_ratio / ratios));
  }
  if (options.prune) {
    out += "pruned to " + options.prune->pattern.describe() + " by " +
           method_name(options.prune->method) + "; masks in " + kMaskFile + "\n";
  }
  out +=
      format("%.1f s (activations %.1f s, rounding %.1f s); written to %s\n", report.total_seconds,
             report.capture_seconds, report.solve_seconds, options.out.c_str());
  return out;
}

OrderedJson kept_json(const std::vector<PlannedLayer>& kept) {
  OrderedJson json = OrderedJson::array();
  for (const PlannedLayer& layer : kept) {
    json.push_back(
        {{"name", layer.name}, {"shape", {layer.rows, layer.cols}}, {"reason", layer.reason}});
  }
  return json;
}

OrderedJson guard_json(const Guard& guard) {
  OrderedJson json = {{"kept", guard.candidates[guard.kept].name},
                      {"candidates", OrderedJson::array()}};
  for (const GuardedCandidate& candidate : guard.candidates) {
    OrderedJson row = {{"name", candidate.name}};
    if (candidate.failure.empty()) {
      row["kl_mean"] = candidate.result.kl_mean;
      row["kl_stderr"] = candidate.result.kl_stderr;
    } else {
      row["failure"] = candidate.failure;
    }
    json["candidates"].push_back(std::move(row));
  }
  return json;
}

std::string guard_text(const Guard& guard) {
  std::string out;
  for (size_t i = 0; i < guard.candidates.size(); ++i) {
    const GuardedCandidate& candidate = guard.candidates[i];
    out += i == 0 ? "KL on held-out windows: " : ", ";
    out += candidate.name + " ";
    out += candidate.failure.empty() ? number_text(candidate.result.kl_mean, 3)
                                     : "failed (" + candidate.failure + ")";
  }
  if (!out.empty()) out += "; kept: " + guard.candidates[guard.kept].name + "\n";
  return out;
}

}  // namespace curvq::cli
