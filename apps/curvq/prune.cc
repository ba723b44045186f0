#include <cmath>

#include "capture_options.h"
#include "commands.h"
#include "curvq/compress/mask_file.h"
#include "curvq/compress/prune_model.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/checkpoint.h"
#include "curvq/nn/decoder_config.h"
#include "curvq/report/numbers.h"
#include "curvq/report/table.h"
#include "data.h"
#include "quantize_report.h"
#include "state_options.h"

namespace curvq::cli {
namespace {

void declare(Options& options) {
  options.add_positional("MODEL", "model directory or .gguf")
      .add_output("out", "DIR",
                  "where the checkpoint goes: the same tensors, dense, with zeros (loaders no "
                  "longer read compressed sparse layouts), and pruning/masks.safetensors; must not "
                  "exist or be empty")
      .add_overwrite()
      .add_dry_run()
      .add_group("pattern")
      .add_number("sparsity", "SHARE", "of each layer's weights that go, below 1", 0, 1)
      .add_text("pattern", "N:M", "of M consecutive weights of a row N stay, such as 2:4")
      .add_choice("allocation", {"uniform", "global"},
                  "with --sparsity: the same share of each layer, or what one threshold on the "
                  "loss's saliencies over all layers gives",
                  "uniform")
      .add_list("ignore", "PATTERN",
                "keep layers whose name matches (glob, or re:REGEX); repeatable")
      .add_group("method")
      .add_choice("method", {"magnitude", "wanda", "obd", "obs", "woodfisher"},
                  "smallest |w|; |w| times the norm of its input, within a row; w^2 times the "
                  "loss's curvature; or w^2 over the inverse Hessian's diagonal, the rest making "
                  "up for what goes (SparseGPT); or the same with blocks of the Fisher matrix",
                  "obs")
      .add_choice("preset", {"fast", "default", "best"},
                  "fast: --method magnitude; best: --sweeps 3 --token-weights gradient "
                  "--input-correction 1 --residual-correction 0.5 (with sequential capture); "
                  "options given beside it win",
                  "default")
      .add_integer("sweeps", "N",
                   "rounds in which kept weights are fitted and the mask is chosen anew, block by "
                   "block (0)",
                   0, 1000);
  add_calibration_options(options);
  options
      .add_choice("scheme", {"nvfp4", "mxfp4", "int4", "int8", "fp8"},
                  "quantize in the same solve: what goes is a code for zero, and rounding makes up "
                  "for both; the checkpoint is then as curvq quantize writes it")
      .add_integer("group-size", "N", "of --scheme int4 and int8: weights that share a scale", 0,
                   int64_t{1} << 24)
      .add_choice("on-indivisible", {"error", "keep"},
                  "for layers whose inputs the group of --scheme does not divide: stop, or neither "
                  "prune nor quantize them",
                  "error")
      .add_integer("block-size", "N",
                   "columns among which obs chooses a mask at a time, without --pattern", 1,
                   int64_t{1} << 24, 128);
  add_correction_options(options);
  options
      .add_text(
          "stats", "FILE",
          "of each layer NAME.diagonal [out, in] of the loss's Hessian for obd (without it, of "
          "the layer's own), or NAME.gradients [samples, out, in] for woodfisher")
      .add_group("running")
      .add_bytes("max-shard-size", "largest file of weights", "5GB")
      .add_max_memory()
      .add_state()
      .add_threads()
      .add_device()
      .add_seed()
      .add_example(
          "prune Llama-3.2-1B --out Llama-3.2-1B-2of4 --pattern 2:4 --preset best --calibration "
          "calibration.txt");
}

SparsityPattern read_pattern(const Options& options) {
  const bool share = options.has("sparsity"), pattern = options.has("pattern");
  if (share == pattern) {
    throw UsageError(share ? "--sparsity and --pattern exclude each other"
                           : "prune needs --sparsity SHARE or --pattern N:M");
  }
  if (pattern) return SparsityPattern::parse(options.text("pattern"));
  SparsityPattern out;
  out.sparsity = options.number("sparsity");
  return out;
}

PruneModelOptions read_options(const Options& options) {
  PruneModelOptions out;
  out.out = options.flag("dry-run") && !options.has("out") ? "" : options.text("out");
  out.overwrite = options.flag("overwrite");
  out.dry_run = options.flag("dry-run");
  out.ignore = options.list("ignore");
  out.prune.pattern = read_pattern(options);
  const std::string preset = options.text("preset");
  out.prune.method = preset == "fast" && !options.given("method")
                         ? PruneMethod::kMagnitude
                         : parse_prune_method(options.text("method"));
  out.allocation =
      options.text("allocation") == "global" ? Allocation::kGlobal : Allocation::kUniform;
  out.prune.damping = options.number("damping");
  out.prune.block_size = options.integer("block-size");
  out.prune.sweeps = options.has("sweeps") ? static_cast<int>(options.integer("sweeps"))
                     : preset == "best"    ? 3
                                           : 0;
  if (options.has("stats")) out.stats = options.text("stats");
  const bool hessians = out.uses_hessians();
  static_cast<CaptureOptions&>(out) = read_capture(options, hessians, hessians);
  if (!options.has("scheme") && out.calibration_activations() == Activations::kInt8)
    out.activations = Activations::kInt16;  // the Hessians', no layer is packed
  out.max_shard_bytes = options.bytes("max-shard-size");
  if (options.has("max-memory")) out.max_memory_bytes = options.bytes("max-memory");
  return out;
}

OrderedJson results_json(const PruneReport& report, const PruneModelOptions& options) {
  OrderedJson json = OrderedJson::object();
  json["pruning"] = {
      {"method", method_name(options.prune.method)},
      {"pattern", options.prune.pattern.describe()},
      {"sweeps", options.prune.sweeps},
      {"allocation", options.allocation == Allocation::kGlobal ? "global" : "uniform"},
      {"token_weights", options.token_weights ? "gradient" : "none"},
      {"input_correction", options.input_correction},
      {"residual_correction", options.residual_correction},
      {"activations", activations_name(options.calibration_activations())}};
  json["layers"] = OrderedJson::array();
  for (const PrunedLayer& layer : report.layers) {
    OrderedJson row = {{"name", layer.name},
                       {"pattern", layer.pattern},
                       {"shape", {layer.rows, layer.cols}},
                       {"sparsity", layer.sparsity},
                       {"relative_error", layer.relative_error},
                       {"magnitude_relative_error", layer.magnitude_relative_error},
                       {"damping", layer.damping},
                       {"dead_inputs", layer.dead_inputs},
                       {"seconds", layer.seconds}};
    if (!layer.note.empty()) row["note"] = layer.note;
    json["layers"].push_back(std::move(row));
  }
  json["kept"] = kept_json(report.kept);
  json["weights"] = report.weights;
  json["zero_weights"] = report.zero_weights;
  json["original_bytes"] = report.original_bytes;
  json["stored_bytes"] = report.stored_bytes;
  json["mask_bytes"] = report.mask_bytes;
  json["masks"] = kMaskFile;
  json["calibration_tokens"] = report.calibration_tokens;
  json["predicted_peak_bytes"] = report.predicted_peak_bytes;
  json["capture_seconds"] = report.capture_seconds;
  json["solve_seconds"] = report.solve_seconds;
  json["total_seconds"] = report.total_seconds;
  return json;
}

std::string results_text(const PruneReport& report, const PruneModelOptions& options, bool color) {
  using Align = Table::Align;
  Table table({{"layer", Align::kLeft},
               {"shape", Align::kRight},
               {"pattern", Align::kRight},
               {"error", Align::kRight},
               {"by magnitude", Align::kRight},
               {"ratio", Align::kRight},
               {"note", Align::kLeft}});
  double log_ratio = 0;
  int64_t ratios = 0;
  for (const PrunedLayer& layer : report.layers) {
    const double ratio = layer.relative_error / layer.magnitude_relative_error;
    if (std::isfinite(ratio) && ratio > 0) log_ratio += std::log(ratio), ++ratios;
    const bool known = !std::isnan(layer.relative_error);
    table.add_row({layer.name,
                   format("%lld x %lld", static_cast<long long>(layer.rows),
                          static_cast<long long>(layer.cols)),
                   layer.pattern, known ? number_text(layer.relative_error, 3) : "",
                   known ? number_text(layer.magnitude_relative_error, 3) : "",
                   known && std::isfinite(ratio) ? format("%.2f", ratio) : "", layer.note});
  }
  std::string out = table.str(color);
  for (const PlannedLayer& layer : report.kept)
    out += "kept " + layer.name + ": " + layer.reason + "\n";
  if (options.dry_run) {
    return out + format(
                     "\n%zu layers, %s weights; nothing written (--dry-run); about %s of "
                     "tensors would be in memory\n",
                     report.layers.size(), count_text(report.weights).c_str(),
                     bytes_text(report.predicted_peak_bytes).c_str());
  }
  out += format("\n%zu layers, %s of %s weights are zero (%.2f %%); checkpoint %s, masks %s\n",
                report.layers.size(), count_text(report.zero_weights).c_str(),
                count_text(report.weights).c_str(), 100.0 * report.zero_weights / report.weights,
                bytes_text(report.stored_bytes).c_str(), bytes_text(report.mask_bytes).c_str());
  if (options.prune.method != PruneMethod::kMagnitude && ratios > 0) {
    out += format("layer error of %s over pruning by magnitude, geometric mean: %.3f\n",
                  method_name(options.prune.method).c_str(), std::exp(log_ratio / ratios));
  }
  out +=
      format("%.1f s (activations %.1f s, pruning %.1f s); written to %s\n", report.total_seconds,
             report.capture_seconds, report.solve_seconds, options.out.c_str());
  return out;
}

// Pruning and rounding in one solve.
QuantizeOptions with_rounding(const PruneModelOptions& pruning, const Options& options) {
  if (!pruning.stats.empty()) throw UsageError("--stats and --scheme exclude each other");
  QuantizeOptions out;
  static_cast<CaptureOptions&>(out) = pruning;
  out.out = pruning.out;
  out.overwrite = pruning.overwrite;
  out.dry_run = pruning.dry_run;
  out.prune = pruning.prune;
  out.method = pruning.uses_hessians() ? Method::kGptq : Method::kRtn;
  out.gptq.damping = pruning.prune.damping;
  out.gptq.search_scales = out.refine.search_scales = options.text("preset") == "best";
  out.refine.sweeps = pruning.prune.sweeps;
  out.plan.scheme = Scheme::parse(options.text("scheme"));
  if (options.has("group-size")) {
    if (out.plan.scheme.scale_type != ScaleType::kFloat)
      throw UsageError(options.where("group-size") + ": " + out.plan.scheme.name() +
                       " has groups of its own");
    out.plan.scheme.group_size = options.integer("group-size");
  }
  out.plan.ignore = pruning.ignore;
  if (options.text("on-indivisible") == "keep") out.plan.on_indivisible = OnIndivisible::kKeep;
  out.max_shard_bytes = pruning.max_shard_bytes;
  out.max_memory_bytes = pruning.max_memory_bytes;
  return out;
}

int run(const Options& options, Output& output) {
  const std::string model = options.positional("MODEL");
  PruneModelOptions prune_options = read_options(options);
  prune_options.validate();
  std::optional<QuantizeOptions> quantize_options;
  if (options.has("scheme")) quantize_options = with_rounding(prune_options, options);
  const DecoderConfig config = DecoderConfig::from_directory(model);
  std::optional<TokenWindows> windows;
  if (options.has("calibration")) windows = load_windows(options, "calibration", model, config);
  output.inputs()["model"] = {{"path", model}, {"hash", Checkpoint(model).content_hash()}};
  if (windows) output.inputs()["calibration"] = describe(*windows);
  if (!prune_options.stats.empty()) {
    output.inputs()["stats"] = {{"path", prune_options.stats},
                                {"hash", Checkpoint(prune_options.stats).content_hash()}};
  }
  prune_options.state = read_state(options, output.inputs());
  if (quantize_options) quantize_options->state = prune_options.state;
  const TokenWindows* calibration = windows ? &*windows : nullptr;
  const auto reporter = [&](const auto& to_json) {
    return [&output, &to_json](const auto& report) {
      output.results() = to_json(report);
      return dump_json(output.document());
    };
  };
  if (quantize_options) {
    const auto json = [&](const QuantizeReport& report) {
      return quantize_results_json(report, *quantize_options);
    };
    const QuantizeReport report =
        quantize_model(model, calibration, *quantize_options, reporter(json));
    output.results() = json(report);
    output.text(quantize_results_text(report, *quantize_options, output.color()));
    return 0;
  }
  const auto json = [&](const PruneReport& report) { return results_json(report, prune_options); };
  const PruneReport report = prune_model(model, calibration, prune_options, reporter(json));
  output.results() = json(report);
  output.text(results_text(report, prune_options, output.color()));
  return 0;
}

}  // namespace

const Command kPruneCommand = {"prune", "a checkpoint with zeros out of a model", declare, run};

}  // namespace curvq::cli
