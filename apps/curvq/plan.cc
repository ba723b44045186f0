#include "curvq/compress/plan.h"

#include <filesystem>

#include "commands.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/atomic_output.h"
#include "curvq/nn/decoder_config.h"
#include "data.h"
#include "plan_check.h"
#include "plan_report.h"
#include "plan_speed.h"
#include "rounding_options.h"

namespace curvq::cli {
namespace {

constexpr double kHeldOut = 0.2;

void declare(Options& options) {
  options.add_positional("MODEL", "model directory")
      .add_number(
          "bits", "B",
          "at most so many bits a weight of the planned layers, scales counted (NVFP4: 4.5)", 1, 32)
      .add_bytes("size", "at most so many bytes of all tensors, instead of --bits")
      .add_output("out", "FILE", "where the plan goes, for curvq quantize --plan")
      .add_overwrite()
      .add_group("formats")
      .add_list("format", "'SCHEME KEY=VALUE'",
                "what layers can become, as behind the = of quantize's rules, or keep; repeatable "
                "(nvfp4, mxfp4, int4 with groups of 32, 64 and 128, int8, fp8, keep)")
      .add_choice("on-indivisible", {"fewer", "keep"},
                  "layers whose inputs a group does not divide have fewer formats to choose from; "
                  "keep: those that no format of four bits divides stay out of the plan",
                  "fewer")
      .add_list("ignore", "PATTERN",
                "keep layers whose name matches, outside of the plan (glob, or re:REGEX); "
                "repeatable")
      .add_choice("by", {"kronecker", "trace", "hawq"},
                  "predicted loss: tr(G D A D^T) / 2; the same with all outputs alike; with all "
                  "inputs alike, too",
                  "kronecker")
      .add_integer("label-draws", "N", "labels drawn for each token, for G", 1, 1000, 4)
      .add_choice("guard", {"none", "held-out"},
                  "quantize by the plan and by the uniform plans next to it, measure, and write "
                  "the best within the budget; none: predict only (held-out, where tokens are)")
      .add_text("data", "FILE",
                "tokens to measure on instead of held-out ones; needed with --stats")
      .add_group("method");
  add_rounding_options(options);
  declare_plan_speed(options);
  options.add_group("running")
      .add_max_memory()
      .add_threads()
      .add_device()
      .add_seed()
      .add_text("report", "FILE", "write a page (.html) with the plan and what it is seen beside")
      .add_example("plan Llama-3.2-1B --bits 4.75 --calibration calibration.txt --out plan.json")
      .add_example("plan Llama-3.2-1B --speed --as nvfp4 --inputs a8")
      .add_example(
          "quantize Llama-3.2-1B --plan plan.json --calibration calibration.txt --out mixed");
}

CostOptions read_costs(const Options& options, bool stats) {
  CostOptions costs;
  costs.rounding = read_rounding(options, /*bare=*/false, stats);
  costs.held_out = options.has("held-out") ? options.number("held-out") : kHeldOut;
  costs.rounding.held_out = costs.rounding.output_factor && !stats ? costs.held_out : 0;
  std::vector<std::string> formats = options.list("format");
  if (formats.empty()) {
    formats = {
        "nvfp4", "mxfp4", "int4 group-size=32", "int4 group-size=64", "int4 group-size=128", "int8",
        "fp8",   "keep"};
  }
  for (const std::string& format : formats) costs.formats.push_back(parse_rule_text(format));
  costs.rounding.plan.ignore = options.list("ignore");
  if (options.text("on-indivisible") == "keep")
    costs.rounding.plan.on_indivisible = OnIndivisible::kKeep;
  costs.label_draws = options.integer("label-draws");
  if (options.has("max-memory")) costs.rounding.max_memory_bytes = options.bytes("max-memory");
  return costs;
}

int64_t budget(const Options& options, const CostReport& costs) {
  if (options.has("bits")) return budget_of_bits(costs.layers, options.number("bits"));
  const int64_t size = options.bytes("size");
  if (size <= costs.other_bytes) {
    throw UsageError(format("%s %lld: tensors that are not planned take %lld bytes alone",
                            options.where("size").c_str(), static_cast<long long>(size),
                            static_cast<long long>(costs.other_bytes)));
  }
  return budget_of_tensors(costs.layers, size - costs.other_bytes);
}

void check_options(const Options& options) {
  if (options.has("bits") == options.has("size"))
    throw UsageError("plan needs --bits or --size, one of them");
  if (!options.has("stats")) {
    options.text("calibration");
    return;
  }
  for (const char* name : {"calibration", "capture", "token-weights", "gradient-share", "held-out",
                           "input-correction", "residual-correction", "label-draws"}) {
    if (options.given(name) && !(name == std::string("capture") && options.text(name) == "float"))
      throw UsageError(options.where(name) +
                       " has no part in --stats, whose factors are those of the original model");
  }
}

// Tokens that rounding has seen, and those that plans are measured on.
struct Tokens {
  std::optional<TokenWindows> calibration;  // all
  std::optional<TokenWindows> rounded;      // what quantize_model() is given
  std::optional<TokenWindows> judges;
};

Tokens load_tokens(const Options& options, const std::string& model, const CostOptions& costs) {
  const DecoderConfig config = DecoderConfig::from_directory(model);
  config.require_head("planning by loss");
  const auto load = [&](const std::string& option) {
    return load_windows(options, option, model, config);
  };
  Tokens tokens;
  if (!options.has("stats")) {
    tokens.rounded = tokens.calibration = load("calibration");
    QuantizeOptions share;
    share.held_out = costs.held_out;
    const int64_t all = tokens.calibration->num_windows, held_out = share.held_out_windows(all);
    if (held_out > 0) tokens.judges = window_range(*tokens.calibration, all - held_out, held_out);
    // The quantizer keeps them out itself where it judges by them, too.
    if (costs.rounding.held_out == 0)
      tokens.rounded = window_range(*tokens.calibration, 0, all - held_out);
  }
  if (options.has("data")) tokens.judges = load("data");
  const std::string guard = options.has("guard") ? options.text("guard") : "";
  if (guard == "none") tokens.judges.reset();
  if (guard == "held-out" && !tokens.judges)
    throw UsageError("--guard held-out needs tokens to measure on: set --held-out, or --data");
  return tokens;
}

int run(const Options& options, Output& output) {
  if (options.flag("speed")) return run_plan_speed(options, output);
  check_options(options);
  const std::string model = options.positional("MODEL");
  const std::string stats = options.has("stats") ? options.text("stats") : "";
  CostOptions cost_options = read_costs(options, !stats.empty());
  const Tokens tokens = load_tokens(options, model, cost_options);
  const std::string hash = Checkpoint(model).content_hash();
  output.inputs()["model"] = {{"path", model}, {"hash", hash}};
  if (tokens.calibration) output.inputs()["calibration"] = describe(*tokens.calibration);
  if (!stats.empty()) output.add_checkpoint("stats", stats);
  if (options.has("data") && tokens.judges) output.inputs()["data"] = describe(*tokens.judges);

  // Checkpoints to measure on, and factors, wait where the plan will be.
  std::optional<AtomicOutput> file;
  if (options.has("out"))
    file.emplace(options.text("out"), AtomicOutput::Kind::kFile, options.flag("overwrite"));
  const std::string place = options.has("out")
                                ? options.text("out")
                                : (std::filesystem::temp_directory_path() / "curvq").string();
  const AtomicOutput scratch(place + ".checkpoints", AtomicOutput::Kind::kDirectory, false);
  cost_options.scratch = scratch.path();

  PlanResults results;
  const std::string by = options.text("by");
  results.rule = by == "trace"  ? PlanRule::kTrace
                 : by == "hawq" ? PlanRule::kHawq
                                : PlanRule::kKronecker;
  const TokenWindows* calibration = tokens.calibration ? &*tokens.calibration : nullptr;
  // That the budget is possible is known before any layer is rounded.
  cost_options.dry_run = true;
  results.costs = measure_costs(model, calibration, cost_options, stats);
  results.budget = budget(options, results.costs);
  solve_plan(results.costs.layers, results.budget, results.rule);
  cost_options.dry_run = false;
  results.costs = measure_costs(model, calibration, cost_options, stats);
  const std::vector<LayerCosts>& layers = results.costs.layers;
  const BitPlan plan = solve_plan(layers, results.budget, results.rule);
  results.uniform = uniform_plans(layers, cost_options.formats, plan);
  results.frontier = plan_frontier(layers, results.rule);
  results.compared = plans_to_measure(plan, results.budget, results.uniform);
  if (tokens.judges) {
    results.judges = tokens.judges->num_windows;
    measure_plans(model, results.costs, tokens.rounded ? &*tokens.rounded : nullptr, stats,
                  cost_options.rounding, *tokens.judges, scratch.path(), results.compared);
    results.chosen = best_measured(results.compared, results.budget);
    if (results.chosen > 0) log_warning(plan_verdict(results));
  }
  output.results() = plan_results_json(results);
  if (file) {
    write_file(file->path(), dump_json(plan_json(layers, results.costs.kept,
                                                 results.compared[results.chosen].plan, hash)));
    file->commit();
  }
  output.text(plan_results_text(results, output.color()));
  if (file) output.text("written to " + options.text("out") + "\n");
  if (options.has("report")) {
    write_file(options.text("report"), plan_page(output.document()));
    output.text("report: " + options.text("report") + "\n");
  }
  return 0;
}

}  // namespace

const Command kPlanCommand = {
    "plan", "which format each layer gets, what it costs, and how fast it is", declare, run};

}  // namespace curvq::cli
