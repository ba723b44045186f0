#include "curvq/compress/quantize.h"

#include <ctime>
#include <filesystem>

#include "commands.h"
#include "curvq/compress/plan.h"
#include "curvq/compress/quantize_script.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/checkpoint.h"
#include "curvq/io/model_files.h"
#include "curvq/nn/decoder_config.h"
#include "data.h"
#include "labelled_data.h"
#include "quantize_guard.h"
#include "quantize_report.h"
#include "rounding_options.h"
#include "rounding_report.h"
#include "state_options.h"

namespace curvq::cli {
namespace {

void declare(Options& options) {
  options
      .add_positional(
          "MODEL",
          "model directory or .gguf, a TorchScript .pt, or a .safetensors whose NAME.weight are "
          "linear layers")
      .add_output("out", "DIR",
                  "where the checkpoint goes; must not exist or be empty. Of a TorchScript or "
                  ".safetensors file also the name of such a file")
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
      .add_choice(
          "input-format", {"none", "nvfp4", "mxfp4", "fp8", "fp8-tensor", "int8"},
          "what whoever runs the checkpoint rounds the layers' inputs to: nvfp4 (W4A4, scale "
          "by calibration) and mxfp4 of the same scheme; fp8, a scale a token, of fp8 and "
          "int4; fp8-tensor, one scale by calibration, of fp8; int8, a scale a token, of int8",
          "none")
      .add_choice("on-indivisible", {"error", "keep", "channel"},
                  "for layers whose inputs the group size does not divide: stop, keep the weight, "
                  "or one scale a row",
                  "error")
      .add_list("ignore", "PATTERN",
                "keep layers whose name matches (glob, or re:REGEX); repeatable")
      .add_list("rule", "'PATTERN = SCHEME KEY=VALUE'",
                "another scheme for some layers, or keep; repeatable")
      .add_text("plan", "FILE", "each layer's scheme by a plan.json, instead of --scheme")
      .add_group("method");
  add_rounding_options(options);
  options
      .add_choice("guard", {"none", "held-out"},
                  "also round by plain gptq and to nearest, and write what is closest to the "
                  "original model on the held-out windows (none; the best preset held-out)")
      .add_group("running")
      .add_bytes("max-shard-size", "largest file of weights", "5GB")
      .add_max_memory()
      .add_state()
      .add_threads()
      .add_device()
      .add_seed()
      .add_text("report", "FILE", "write a page (.html) with the layers' errors, step by step")
      .add_example(
          "quantize Llama-3.2-1B --out Llama-3.2-1B-NVFP4 --scheme nvfp4 --calibration "
          "calibration.txt");
}

void read_plan_file(const Options& options, PlanOptions& plan) {
  for (const char* name : {"scheme", "group-size", "symmetric", "input-format"}) {
    if (options.given(name))
      throw UsageError(options.where(name) +
                       " stands beside --plan, which has each layer's scheme; leave one of them "
                       "out, or change single layers with --rule");
  }
  const std::string hash = Checkpoint(options.positional("MODEL")).content_hash();
  plan.assignment = read_plan(options.text("plan"), hash);
}

QuantizeOptions read_options(const Options& options, bool bare, bool stats) {
  QuantizeOptions out = read_rounding(options, bare, stats);
  out.out = options.flag("dry-run") && !options.has("out") ? "" : options.text("out");
  out.overwrite = options.flag("overwrite");
  out.dry_run = out.predict_time = options.flag("dry-run");
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
  scheme.inputs = parse_input_format(options.text("input-format"));
  out.plan.scheme = scheme;
  if (options.has("plan")) read_plan_file(options, out.plan);
  out.plan.ignore = options.list("ignore");
  for (const std::string& rule : options.list("rule"))
    out.plan.rules.push_back(SchemeRule::parse(rule, scheme));
  const std::string indivisible = options.text("on-indivisible");
  out.plan.on_indivisible = indivisible == "keep"      ? OnIndivisible::kKeep
                            : indivisible == "channel" ? OnIndivisible::kChannel
                                                       : OnIndivisible::kError;
  out.max_shard_bytes = options.bytes("max-shard-size");
  if (options.has("max-memory")) out.max_memory_bytes = options.bytes("max-memory");
  return out;
}

// A TorchScript file, of which no more is known than its operators, goes without some options.
void check_script(const Options& options) {
  const std::string file = options.positional("MODEL");
  if (!std::filesystem::exists(file)) throw UsageError(file + ": no such file");
  for (const char* name :
       {"plan", "guard", "held-out", "output-factor", "token-weights", "gradient-share",
        "input-correction", "residual-correction", "inverse", "max-length", "state"}) {
    if (options.given(name))
      throw UsageError(options.where(name) + " needs a model directory, not a TorchScript file");
  }
}

bool has_known_family(const std::string& model) {
  const std::string origin = model_file_origin(model, "config.json");
  return is_known_family(json_string(read_model_config(model), "model_type", "", origin));
}

bool guarded(const Options& options, const QuantizeOptions& quantize_options,
             const TokenWindows* windows, bool has_head) {
  if (options.has("guard")) return options.text("guard") == "held-out";
  return options.text("preset") == "best" && windows != nullptr && has_head &&
         quantize_options.held_out_windows(windows->num_windows) > 0;
}

int run(const Options& options, Output& output) {
  const std::string model = options.positional("MODEL");
  const bool script = is_torchscript(model), bare = !script && is_bare_safetensors(model);
  if (script) check_script(options);
  const std::string stats = options.has("stats") ? options.text("stats") : "";
  QuantizeOptions quantize_options = read_options(options, bare || script, !bare && !stats.empty());
  if (script && !quantize_options.activations) quantize_options.activations = Activations::kFloat32;
  const bool by_tensors =
      bare || (quantize_options.method == Method::kRtn && !quantize_options.prune &&
               std::filesystem::is_directory(model) && !has_known_family(model));
  if (by_tensors && options.has("state"))
    throw UsageError(options.where("state") +
                     " needs a model of a known family, to go by its blocks");
  std::optional<TokenWindows> windows;
  torch::Tensor x;  // of a TorchScript file
  bool has_head = true;
  if (bare) {
    for (const char* name : {"token-weights", "gradient-share", "held-out", "guard",
                             "input-correction", "residual-correction"}) {
      if (options.given(name))
        throw UsageError(options.where(name) + " needs a model directory, to follow its layers");
    }
    if (options.has("calibration"))
      throw UsageError("--calibration needs a model directory; a bare .safetensors takes --stats");
  } else {
    if (!stats.empty()) {
      for (const char* name : {"calibration", "capture", "token-weights", "gradient-share",
                               "held-out", "guard", "input-correction", "residual-correction"}) {
        if (options.given(name) &&
            !(name == std::string("capture") && options.text(name) == "float"))
          throw UsageError(options.where(name) +
                           " has no part in --stats, whose Hessians are those of the original "
                           "model's activations");
      }
    }
    if (script) {
      if (options.has("calibration")) {
        const SafetensorsFile file = open_samples(options, "calibration");
        x = load_x(file, options);
        output.inputs()["calibration"] = describe(file, x.size(0));
      }
    } else if (!by_tensors || options.has("calibration")) {
      const DecoderConfig config = DecoderConfig::from_directory(model);
      has_head = !config.bidirectional;
      if (options.has("guard") && options.text("guard") != "none")
        config.require_head(options.where("guard") + " held-out");
      if (options.has("calibration")) {
        windows = load_windows(options, "calibration", model, config);
      }
    }
  }
  output.inputs()["model"] = {
      {"path", model}, {"hash", script ? file_hash(model) : Checkpoint(model).content_hash()}};
  if (windows) output.inputs()["calibration"] = describe(*windows);
  if (options.has("plan")) {
    output.inputs()["plan"] = {{"path", options.text("plan")},
                               {"hash", file_hash(options.text("plan"))}};
  }
  if (!stats.empty())
    output.inputs()["stats"] = {{"path", stats}, {"hash", Checkpoint(stats).content_hash()}};
  quantize_options.state = read_state(options, output.inputs());
  const auto write_report = [&](const QuantizeReport& report) {
    output.results() = rounding_results_json(report, quantize_options);
    return dump_json(output.document());
  };
  QuantizeReport report;
  Guard guard;
  const double so_far = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  if (guarded(options, quantize_options, windows ? &*windows : nullptr, has_head)) {
    if (!windows) throw UsageError("--guard held-out needs --calibration");
    report = quantize_guarded(
        model, *windows, quantize_options,
        [&](const QuantizeReport& of_kept, const Guard& found) {
          output.results() = rounding_results_json(of_kept, quantize_options);
          output.results()["guard"] = guard_json(found);
          return dump_json(output.document());
        },
        guard);
  } else if (script) {
    report = quantize_script(model, x, quantize_options, write_report, stats);
  } else if (by_tensors) {
    report = quantize_tensors(model, stats, quantize_options, write_report);
  } else {
    report =
        quantize_model(model, windows ? &*windows : nullptr, quantize_options, write_report, stats);
  }
  if (report.predicted_time) {  // a run gets here, too
    report.predicted_time->seconds += so_far;
    report.predicted_time->cpu_seconds += so_far;
  }
  output.results() = rounding_results_json(report, quantize_options);
  if (!guard.candidates.empty()) output.results()["guard"] = guard_json(guard);
  output.text(quantize_results_text(report, quantize_options, output.color()));
  output.text(plane_bound_text(report));
  output.text(guard_text(guard));
  if (options.has("report") && !quantize_options.dry_run) {
    write_file(options.text("report"), quantize_page(output.document()));
    output.text("report: " + options.text("report") + "\n");
  }
  return 0;
}

}  // namespace

const Command kQuantizeCommand = {"quantize", "a checkpoint in 4 or 8 bits out of a model", declare,
                                  run};

}  // namespace curvq::cli
