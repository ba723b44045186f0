#include "plan_speed.h"

#include "bench_gemm.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/eval/speed_plan.h"
#include "curvq/report/numbers.h"
#include "curvq/report/table.h"

namespace curvq::cli {
namespace {

SpeedPlanOptions read_options(const Options& options) {
  for (const char* name : {"bits", "size", "out", "stats", "calibration", "data", "report"}) {
    if (options.given(name))
      throw UsageError(options.where(name) + " has no part in --speed, which makes no plan");
  }
  SpeedPlanOptions wanted;
  wanted.prompt_tokens = options.integer("prompt-tokens");
  wanted.context_tokens = options.integer("context-tokens");
  const std::string inputs = options.text("inputs");
  wanted.rounding = inputs == "bf16"  ? InputRounding::kBF16
                    : inputs == "a15" ? InputRounding::kA15
                    : inputs == "a8"  ? InputRounding::kA8
                                      : InputRounding::kNone;
  if (options.given("as")) wanted.scheme = Scheme::parse(options.text("as"));
  return wanted;
}

OrderedJson to_json(const LayerSpeed& layer) {
  return {{"name", layer.name},
          {"format", layer.format},
          {"count", layer.count},
          {"rows", layer.rows},
          {"cols", layer.cols},
          {"bytes", layer.bytes},
          {"decode_seconds", layer.decode_seconds},
          {"decode_bound", layer.decode_bound},
          {"prefill_seconds", layer.prefill_seconds},
          {"prefill_bound", layer.prefill_bound}};
}

OrderedJson to_json(const MachineSpeed& machine) {
  return {{"machine", machine.machine},
          {"memory_bytes", machine.memory_bytes},
          {"needed_bytes", machine.needed_bytes},
          {"decode_tokens_per_second", machine.decode_tokens_per_second},
          {"decode_bound", machine.decode_bound},
          {"prefill_tokens_per_second", machine.prefill_tokens_per_second},
          {"prefill_bound", machine.prefill_bound}};
}

std::string layer_table(const SpeedPlan& plan, bool color) {
  using Align = Table::Align;
  Table table({{"layers here"},
               {"format"},
               {"shape", Align::kRight},
               {"bytes", Align::kRight},
               {"decode ms", Align::kRight},
               {"bound by"},
               {"prefill ms", Align::kRight},
               {"bound by"}});
  const auto ms = [](double seconds) { return format("%.3f", 1e3 * seconds); };
  for (const LayerSpeed& layer : plan.layers) {
    table.add_row({format("%lld x %s", (long long)layer.count, layer.name.c_str()), layer.format,
                   format("%lldx%lld", (long long)layer.rows, (long long)layer.cols),
                   bytes_text(layer.bytes), ms(layer.decode_seconds), layer.decode_bound,
                   ms(layer.prefill_seconds), layer.prefill_bound});
  }
  table.add_row({"attention, norms, residuals", "", "", "", ms(plan.decode_other_seconds), "",
                 ms(plan.prefill_other_seconds), ""});
  return table.str(color);
}

std::string machine_table(const SpeedPlan& plan, bool color) {
  using Align = Table::Align;
  Table table({{"machine"},
               {"needs", Align::kRight},
               {"has", Align::kRight},
               {"decode tokens/s", Align::kRight},
               {"bound by"},
               {"prefill tokens/s", Align::kRight},
               {"bound by"}});
  for (const MachineSpeed& m : plan.machines) {
    table.add_row({m.machine, bytes_text(m.needed_bytes), bytes_text(m.memory_bytes),
                   format("%.4g", m.decode_tokens_per_second), m.decode_bound,
                   format("%.4g", m.prefill_tokens_per_second), m.prefill_bound});
  }
  return table.str(color);
}

}  // namespace

void declare_plan_speed(Options& options) {
  options.add_group("speed")
      .add_flag("speed",
                "instead of a plan, predict memory and tokens a second, here and on named machines")
      .add_integer("prompt-tokens", "N", "speed: tokens that are read at once", 1, 1 << 24, 512)
      .add_integer("context-tokens", "N", "speed: tokens that a new one sees", 1, 1 << 24, 512)
      .add_choice("inputs", {"float32", "bf16", "a15", "a8"},
                  "speed: inputs of 4-bit layers, see generate --engine", "float32")
      .add_text("as", "SCHEME", "speed: as if plain linear layers were nvfp4, mxfp4, ...");
}

int run_plan_speed(const Options& options, Output& output) {
  const std::string model = options.positional("MODEL");
  const SpeedPlan plan = plan_speed(model, read_options(options));
  output.inputs()["model"] = {{"path", model}};
  OrderedJson& results = output.results();
  results["threads"] = num_threads();
  results["limits"] = limits_json(plan.limits);
  results["layers"] = OrderedJson::array();
  for (const LayerSpeed& layer : plan.layers) results["layers"].push_back(to_json(layer));
  results["decode_other_seconds"] = plan.decode_other_seconds;
  results["prefill_other_seconds"] = plan.prefill_other_seconds;
  results["machines"] = OrderedJson::array();
  for (const MachineSpeed& machine : plan.machines) results["machines"].push_back(to_json(machine));
  output.text(
      layer_table(plan, output.color()) + "\n" + machine_table(plan, output.color()) +
      format("%d threads, processor time; named machines: the least that data sheets allow, "
             "nothing measured\n",
             num_threads()));
  return 0;
}

}  // namespace curvq::cli
