#include "curvq/compress/quantize.h"

#include <cmath>
#include <filesystem>

#include "commands.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/checkpoint.h"
#include "curvq/nn/decoder_config.h"
#include "curvq/report/numbers.h"
#include "curvq/report/table.h"
#include "data.h"

namespace curvq::cli {
namespace {

const std::map<Activations, std::string> kActivations = {{Activations::kFloat32, "float32"},
                                                         {Activations::kInt16, "int16"},
                                                         {Activations::kInt8, "int8"}};

void declare(Options& options) {
  options
      .add_positional("MODEL",
                      "model directory, or a .safetensors whose NAME.weight are linear layers")
      .add_output("out", "DIR", "where the checkpoint goes; must not exist or be empty")
      .add_overwrite()
      .add_dry_run()
      .add_group("format")
      .add_choice("scheme", {"nvfp4", "mxfp4", "int4", "int8", "fp8"},
                  "number format of the weights", "nvfp4")
      .add_integer("group-size", "N",
                   "weights of a row that share a scale, 0: the whole row (int4: 128, int8: 0)", 0,
                   int64_t{1} << 24)
      .add_switch("symmetric", "asymmetric", true,
                  "integers around zero, or with a zero point a group")
      .add_choice(
          "scale-rule",
          {"curvq", "compressed-tensors", "modelopt", "torchao", "llama.cpp", "four-over-six"},
          "whose arithmetic decides scales and codes, to the bit", "curvq")
      .add_choice("mx-rule", {"floor", "even", "ceil", "rceil"},
                  "rounding of mxfp4's power-of-two scales", "even")
      .add_choice("on-indivisible", {"error", "keep", "channel"},
                  "for layers whose inputs the group size does not divide: stop, keep the weight, "
                  "or one scale a row",
                  "error")
      .add_list("ignore", "PATTERN",
                "keep layers whose name matches (glob, or re:REGEX); repeatable")
      .add_list("rule", "'PATTERN = SCHEME KEY=VALUE'",
                "another scheme for some layers, or keep; repeatable")
      .add_group("method")
      .add_choice("method", {"rtn", "gptq"}, "round to nearest, or GPTQ", "gptq")
      .add_choice(
          "preset", {"fast", "default", "best"},
          "fast: --method rtn; best: --scale-search hessian --sweeps 2 --token-weights gradient "
          "--output-factor fisher --held-out 0.2 --input-correction 1 --residual-correction 0.5 "
          "(corrections with sequential capture only); options given beside it win",
          "default")
      .add_text("calibration", "FILE",
                "text (.txt, .jsonl) or token ids (.safetensors[:NAME]) for gptq");
  add_window_options(options);
  options
      .add_choice("capture", {"sequential", "float"},
                  "activations from behind the quantized layers, or from the original model",
                  "sequential")
      .add_choice(
          "activations", {"auto", "int8", "int16", "float32"},
          "what inputs of quantized layers are rounded to while calibrating (int8: 4-bit layers; "
          "Hessians take 16 bits then); auto: int8, int16 with corrections, float32 with float "
          "capture",
          "auto")
      .add_number("damping", "SHARE", "of the mean diagonal, added to the Hessian's", 0, 1e6, 0.01)
      .add_choice("act-order", {"static", "none"},
                  "largest Hessian diagonal first, or left to right", "static")
      .add_choice("scale-search", {"none", "hessian"},
                  "scales by the format's rule, or of those near it the one whose rounded group "
                  "adds least to the layer's error (none)")
      .add_integer("sweeps", "N",
                   "passes of block coordinate descent over codes (and scales, with "
                   "--scale-search hessian) after gptq (0)",
                   0, 1000)
      .add_choice("token-weights", {"none", "gradient"},
                  "Hessians of plain tokens, or half of tokens weighted by the gradient of the "
                  "model's own likelihood in the layer's output (none)")
      .add_choice("output-factor", {"none", "fisher"},
                  "sweeps weigh a layer's outputs alike, or by how the model's likelihood depends "
                  "on them, correlations included (none)")
      .add_number("held-out", "SHARE",
                  "of the calibration windows, the last ones, that rounding does not see: by them "
                  "each layer's sweeps are judged, and what they would worsen is undone (0; the "
                  "best preset 0.2)",
                  0, 0.9)
      .add_number("input-correction", "SHARE",
                  "of the change in a layer's inputs that rounding the layers before it made, to "
                  "be made up for (0)",
                  0, 1)
      .add_number("residual-correction", "SHARE",
                  "the same for the residual stream, in layers that write to it (0)", 0, 1)
      .add_integer("block-size", "N", "columns between two lazy updates", 1, int64_t{1} << 24, 128)
      .add_text("stats", "FILE",
                "instead of calibration: NAME.hessian, NAME.A or NAME.inputs of each layer, and NAME.G "
                "for --output-factor, as curvq hessian --what kfac --stats writes; of the original "
                "model's activations")
      .add_group("running")
      .add_bytes("max-shard-size", "largest file of weights", "5GB")
      .add_max_memory()
      .add_threads()
      .add_device()
      .add_seed()
      .add_example(
          "quantize Llama-3.2-1B --out Llama-3.2-1B-NVFP4 --scheme nvfp4 --calibration "
          "calibration.txt");
}

QuantizeOptions read_options(const Options& options, bool bare, bool stats) {
  QuantizeOptions out;
  out.out = options.flag("dry-run") && !options.has("out") ? "" : options.text("out");
  out.overwrite = options.flag("overwrite");
  out.dry_run = options.flag("dry-run");
  Scheme scheme = Scheme::parse(options.text("scheme"));
  const bool integer = scheme.element == ElementType::kInt;
  if (options.has("group-size")) {
    const int64_t group = options.integer("group-size");
    if (scheme.scale_type != ScaleType::kFloat && group != scheme.group_size) {
      throw UsageError(options.where("group-size") +
                       format(" %lld: %s has groups of %lld, by definition",
                              static_cast<long long>(group), scheme.name().c_str(),
                              static_cast<long long>(scheme.group_size)));
    }
    scheme.group_size = group;
  }
  if (!options.flag("symmetric")) {
    if (!integer)
      throw UsageError("--asymmetric: " + scheme.name() +
                       " has no zero points; only int4 and int8 do");
    scheme.symmetric = false;
  }
  scheme.rule = parse_scale_rule(options.text("scale-rule"));
  scheme.mx_rule = parse_mx_rule(options.text("mx-rule"));
  out.plan.scheme = scheme;
  out.plan.ignore = options.list("ignore");
  for (const std::string& rule : options.list("rule"))
    out.plan.rules.push_back(SchemeRule::parse(rule, scheme));
  const std::string indivisible = options.text("on-indivisible");
  out.plan.on_indivisible = indivisible == "keep"      ? OnIndivisible::kKeep
                            : indivisible == "channel" ? OnIndivisible::kChannel
                                                       : OnIndivisible::kError;
  const std::string preset = options.text("preset");
  const std::string method =
      preset == "fast" && !options.given("method") ? "rtn" : options.text("method");
  out.method = method == "rtn" ? Method::kRtn : Method::kGptq;
  if (preset == "best" && out.method == Method::kRtn)
    throw UsageError("--preset best rounds by gptq; leave out --method rtn, or the preset");
  out.capture =
      options.text("capture") == "float" || stats ? Capture::kFloat : Capture::kSequential;
  const std::string activations = options.text("activations");
  for (const auto& [value, name] : kActivations) {
    if (name == activations) out.activations = value;
  }
  out.gptq.damping = options.number("damping");
  out.gptq.block_size = options.integer("block-size");
  out.gptq.act_order = options.text("act-order") == "none" ? ActOrder::kNone : ActOrder::kStatic;
  const bool best = preset == "best";
  const std::string search = options.has("scale-search") ? options.text("scale-search")
                             : best                      ? "hessian"
                                                         : "none";
  out.gptq.search_scales = out.refine.search_scales = search == "hessian";
  out.refine.sweeps = options.has("sweeps") ? static_cast<int>(options.integer("sweeps"))
                      : best                ? 2
                                            : 0;
  const bool corrects =
      best && !bare && out.capture == Capture::kSequential && out.method == Method::kGptq;
  out.token_weights = options.has("token-weights") ? options.text("token-weights") == "gradient"
                                                    : best && !bare && !stats;
  out.output_factor = options.has("output-factor")
                          ? options.text("output-factor") == "fisher"
                          : best && !bare && out.method == Method::kGptq && out.refine.sweeps > 0;
  out.held_out = options.has("held-out")               ? options.number("held-out")
                 : best && out.output_factor && !stats ? 0.2
                                                       : 0.0;
  out.seed = static_cast<uint64_t>(options.integer("seed"));
  const auto share = [&](const char* name, double best_share) {
    return options.has(name) ? options.number(name) : corrects ? best_share : 0.0;
  };
  out.input_correction = share("input-correction", 1);
  out.residual_correction = share("residual-correction", 0.5);
  out.max_shard_bytes = options.bytes("max-shard-size");
  if (options.has("max-memory")) out.max_memory_bytes = options.bytes("max-memory");
  return out;
}

OrderedJson results_json(const QuantizeReport& report, const QuantizeOptions& options) {
  OrderedJson json = OrderedJson::object();
  json["rounding"] = {{"method", options.method == Method::kRtn ? "rtn" : "gptq"},
                      {"scale_search", options.gptq.search_scales},
                      {"sweeps", options.refine.sweeps},
                      {"token_weights", options.token_weights ? "gradient" : "none"},
                      {"output_factor", options.output_factor ? "fisher" : "none"},
                      {"held_out", options.held_out},
                      {"input_correction", options.input_correction},
                      {"residual_correction", options.residual_correction},
                      {"activations", kActivations.at(options.calibration_activations())}};
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
    if (layer.held_out) {
      row["held_out_error"] = {{"rtn", layer.held_out->rtn},
                               {"gptq", layer.held_out->gptq},
                               {"kept", layer.held_out->kept}};
    }
    if (!layer.note.empty()) row["note"] = layer.note;
    json["layers"].push_back(std::move(row));
  }
  json["kept"] = OrderedJson::array();
  for (const PlannedLayer& layer : report.kept) {
    json["kept"].push_back(
        {{"name", layer.name}, {"shape", {layer.rows, layer.cols}}, {"reason", layer.reason}});
  }
  json["original_bytes"] = report.original_bytes;
  json["stored_bytes"] = report.stored_bytes;
  json["quantized_weights"] = report.quantized_weights;
  json["quantized_bytes"] = report.quantized_bytes;
  json["calibration_tokens"] = report.calibration_tokens;
  json["predicted_peak_bytes"] = report.predicted_peak_bytes;
  json["capture_seconds"] = report.capture_seconds;
  json["solve_seconds"] = report.solve_seconds;
  json["total_seconds"] = report.total_seconds;
  return json;
}

std::string results_text(const QuantizeReport& report, const QuantizeOptions& options, bool color) {
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
    return out + format("nothing written (--dry-run); about %s of tensors would be in memory\n",
                        bytes_text(report.predicted_peak_bytes).c_str());
  }
  if (options.method == Method::kGptq && ratios > 0) {
    out += format(
        "layer error of gptq over round to nearest, geometric mean: %.3f (%lld calibration "
        "tokens)\n",
        std::exp(log_ratio / ratios), static_cast<long long>(report.calibration_tokens));
  }
  out +=
      format("%.1f s (activations %.1f s, rounding %.1f s); written to %s\n", report.total_seconds,
             report.capture_seconds, report.solve_seconds, options.out.c_str());
  return out;
}

int run(const Options& options, Output& output) {
  const std::string model = options.positional("MODEL");
  const bool bare = is_bare_safetensors(model);
  const std::string stats = options.has("stats") ? options.text("stats") : "";
  const QuantizeOptions quantize_options = read_options(options, bare, !bare && !stats.empty());
  std::optional<TokenWindows> windows;
  if (bare) {
    for (const char* name :
         {"token-weights", "held-out", "input-correction", "residual-correction"}) {
      if (options.given(name))
        throw UsageError(options.where(name) + " needs a model directory, to follow its layers");
    }
    if (options.has("calibration"))
      throw UsageError("--calibration needs a model directory; a bare .safetensors takes --stats");
  } else {
    if (!stats.empty()) {
      for (const char* name :
           {"calibration", "capture", "token-weights", "held-out", "input-correction",
            "residual-correction"}) {
        if (options.given(name) &&
            !(name == std::string("capture") && options.text(name) == "float"))
          throw UsageError(options.where(name) +
                           " has no part in --stats, whose Hessians are those of the original "
                           "model's activations");
      }
    }
    const DecoderConfig config = DecoderConfig::from_directory(model);
    if (options.has("calibration")) {
      windows =
          load_windows(options, "calibration", model, config.max_positions, config.vocab_size);
    }
  }
  output.inputs()["model"] = {{"path", model}, {"hash", Checkpoint(model).content_hash()}};
  if (windows) output.inputs()["calibration"] = describe(*windows);
  if (!stats.empty())
    output.inputs()["stats"] = {{"path", stats}, {"hash", Checkpoint(stats).content_hash()}};
  const auto write_report = [&](const QuantizeReport& report) {
    output.results() = results_json(report, quantize_options);
    return dump_json(output.document());
  };
  const QuantizeReport report = bare
                                    ? quantize_tensors(model, stats, quantize_options, write_report)
                                    : quantize_model(model, windows ? &*windows : nullptr,
                                                     quantize_options, write_report, stats);
  output.results() = results_json(report, quantize_options);
  output.text(results_text(report, quantize_options, output.color()));
  return 0;
}

}  // namespace

const Command kQuantizeCommand = {"quantize", "a checkpoint in 4 or 8 bits out of a model", declare,
                                  run};

}  // namespace curvq::cli
