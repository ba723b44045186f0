// curvq hessian: curvature statistics of a model on data.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "commands.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/core/progress.h"
#include "curvq/curvature/curvature_operator.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/model_files.h"
#include "curvq/report/numbers.h"
#include "hessian_kfac.h"
#include "hessian_processes.h"
#include "hessian_report.h"
#include "hessian_statistics.h"
#include "hessian_stats.h"
#include "memory_plan.h"
#include "problem.h"

namespace curvq::cli {
namespace {

const std::vector<std::string> kStatistics = {"trace",   "diagonal", "eigen",
                                              "density", "blocks",   "kfac"};

Curvature curvature_of(const std::string& name) {
  for (const Curvature curvature : {Curvature::kHessian, Curvature::kGaussNewton,
                                    Curvature::kFisher, Curvature::kEmpiricalFisher}) {
    if (curvature_name(curvature) == name) return curvature;
  }
  throw std::logic_error("operator " + name);
}

// "trace,eigen": each known, none twice.
std::vector<std::string> split_what(const Options& options) {
  std::vector<std::string> what;
  std::string rest = options.text("what") + ",";
  for (size_t comma; (comma = rest.find(',')) != std::string::npos; rest.erase(0, comma + 1)) {
    const std::string name = rest.substr(0, comma);
    if (std::find(kStatistics.begin(), kStatistics.end(), name) == kStatistics.end()) {
      throw UsageError(options.where("what") + " '" + name +
                       "': must be some of trace, diagonal, eigen, density, blocks, kfac, with "
                       "commas");
    }
    if (std::find(what.begin(), what.end(), name) == what.end()) what.push_back(name);
  }
  return what;
}

void declare(Options& options) {
  options.add_positional(
      "MODEL", "model directory or .gguf (quantized layers are dequantized), or TorchScript .pt");
  add_problem_options(options);
  options.add_group("what to compute")
      .add_choice("operator", {"hessian", "ggn", "fisher", "empirical-fisher"},
                  "the matrix: second derivatives, Gauss-Newton, Fisher with the expectation over "
                  "the model's own labels, or with the data's labels",
                  "hessian")
      .add_text("what", "LIST",
                "some of trace, diagonal, eigen, density, blocks, kfac, with commas", "trace,eigen")
      .add_list(
          "parameters", "PATTERN",
          "differentiate by these only: a glob or re:EXPRESSION over parameter names; repeatable")
      .add_list("ignore", "PATTERN", "leave these parameters out; repeatable")
      .add_choice("per", {"model", "layer", "tensor"}, "what the table and `layers` have a row for",
                  "layer")
      .add_flag("exact", "from the whole matrix, entry by entry: small nets only")
      .add_integer("probes", "N", "random vectors for trace, diagonal, density and blocks", 2,
                   int64_t{1} << 30, 30)
      .add_integer("deflate", "N",
                   "trace: Lanczos vectors, as many products more, whose part of the trace is "
                   "exact: a smaller error where few eigenvalues dominate",
                   0, 1000, 0)
      .add_flag(
          "probe-per-block",
          "give each row of the table probes of its own: a far smaller error of its trace, for "
          "as many times the work")
      .add_flag("eigen-per-block",
                "eigenvalues of each row's diagonal block too, for as many times the work (with "
                "--exact always)")
      .add_integer("top-k", "K", "eigenvalues of largest magnitude", 1, 1000, 5)
      .add_number("tol", "T", "error of eigenvalues, relative to the largest", 1e-14, 0.5, 1e-3)
      .add_integer("max-products", "N", "give up on eigenvalues behind so many products", 3,
                   int64_t{1} << 40, 1000)
      .add_integer("steps", "N", "Lanczos steps a probe, for the density", 2, 1000, 30);
  add_kfac_options(options);
  options.add_group("files");
  add_stats_options(options);
  options.add_text("report", "FILE", "write a page (.html) with plots of the results");
  options.add_group("how")
      .add_max_memory()
      .add_integer("timeout", "SECONDS",
                   "how long to wait for another process, where RANK, WORLD_SIZE, MASTER_ADDR and "
                   "MASTER_PORT are set (by torchrun, say) and each has a part of the samples",
                   1, 1000000, 1800)
      .add_dry_run()
      .add_seed()
      .add_threads()
      .add_device()
      .add_example("hessian net.pt --data digits.safetensors --what trace,eigen,density")
      .add_example("hessian SmolLM2-135M --data text.txt --max-length 128 --num-samples 4")
      .add_example("hessian SmolLM2-135M --data text.txt --what kfac --stats S.safetensors")
      .add_example(
          "hessian SmolLM2-135M --merge part1.safetensors --merge part2.safetensors --stats "
          "S.safetensors");
}

std::string dtype_of(const torch::TensorOptions& options) {
  return options.dtype() == torch::kFloat64 ? "float64" : "float32";
}

CurvatureProvenance provenance_of(const Options& options, const Batch& samples, int64_t terms,
                                  const std::string& dtype) {
  const KfacOptions kfac = kfac_options(options);
  CurvatureProvenance p;
  p.samples = samples.inputs.size(0);
  p.loss_terms = terms;
  p.sample_shape = shape_string(samples.inputs.sizes().slice(1).vec());
  p.dtype = dtype;
  p.loss = options.text("loss");
  p.labels = labels_name(kfac.labels);
  p.label_draws = kfac.draws;
  p.weight_sharing = options.text("weight-sharing");
  return p;
}

// What is known before the statistics that products with the matrix give.
void state_problem(const Problem& problem, Curvature curvature, const Options& options,
                   const Processes& processes, Output& output) {
  const Problem::Gradient gradient = processes.gradient(problem);
  OrderedJson& results = output.results();
  results["operator"] = curvature_name(curvature);
  results["loss_value"] = gradient.value;
  results["gradient_norm"] = gradient.gradient.norm().item<double>();
  output.text(bold(options.positional("MODEL"), output.color()) + "\n");
  output.text(
      format("%s of the mean %s over %s loss terms (%s samples) by %s parameters, %s\n"
             "loss %s, gradient norm %s\n",
             curvature_name(curvature).c_str(), problem.loss().name().c_str(),
             with_separators(results["loss_terms"].get<int64_t>()).c_str(),
             with_separators(results["samples"].get<int64_t>()).c_str(),
             with_separators(problem.dimension()).c_str(), dtype_of(problem.options()).c_str(),
             number_text(gradient.value).c_str(),
             number_text(results["gradient_norm"].get<double>()).c_str()));
}

void state_data(const CurvatureProvenance& p, const Options& options, const Processes& processes,
                OrderedJson& results) {
  results["loss"] = p.loss;
  results["samples"] = p.samples;
  results["loss_terms"] = p.loss_terms;
  results["reduction"] = p.reduction;
  results["dtype"] = p.dtype;
  results["exact"] = options.flag("exact");
  if (processes) results["processes"] = processes.size();
}

// K-FAC factors go through a model directory block by block, whether or not other
// statistics had all of it in memory before.
void run_decoder_kfac(const Options& options, Processes& processes, StatsOutput& stats,
                      Output& output) {
  const bool wide = options.text("dtype") == "float64";
  const DecoderModel model(options.positional("MODEL"), Engine::kDequantized,
                           wide ? torch::kFloat64 : torch::kFloat32);
  Batch tokens = load_tokens(model, options, output);
  const CurvatureProvenance provenance = provenance_of(
      options, tokens, cross_entropy()->num_terms(tokens.targets), wide ? "float64" : "float32");
  const std::vector<LinearInfo> layers = chosen_layers(model, options);
  processes.split(tokens, *cross_entropy());
  check_kfac(model, tokens, kfac_options(options));
  if (!output.results().contains("loss")) {
    if (options.flag("dry-run") || options.has("max-memory")) {
      const MemoryPlan plan = plan_kfac_memory(model, tokens, options);
      output.results()["memory"] = plan.json();
      if (options.flag("dry-run")) output.text(plan.text(output.color()));
      plan.check("use fewer or shorter windows, or fewer --label-draws");
      if (options.flag("dry-run")) return;
    }
    state_data(provenance, options, processes, output.results());
  }
  std::vector<LayerCurvatureShape> shapes;
  for (const LinearInfo& layer : layers)
    shapes.push_back({layer.name, layer.in_features + layer.has_bias, layer.out_features});
  stats.begin(output, provenance, shapes);
  compute_kfac(model, tokens, options, processes, output,
               [&](const LayerFactors& layer) { stats.write(layer); });
}

void run_problem_kfac(const Problem& problem, const CurvatureProvenance& provenance,
                      const Options& options, const Processes& processes, StatsOutput& stats,
                      Output& output) {
  std::vector<LayerFactors> layers;
  std::vector<LayerCurvatureShape> shapes;
  compute_kfac(problem, options, processes, output, [&](LayerFactors layer) {
    shapes.push_back({layer.name, layer.factors.a.size(0), layer.factors.g.size(0)});
    layers.push_back(std::move(layer));
  });
  stats.begin(output, provenance, shapes);
  for (const LayerFactors& layer : layers) stats.write(layer);
}

void compute(const Options& options, Output& output) {
  at::set_num_threads(num_threads());
  std::vector<std::string> what = split_what(options);
  options.text("data");
  const bool directory = is_model(options.positional("MODEL"));
  StatsOutput stats(options, what);
  Processes processes(std::chrono::seconds(options.integer("timeout")));
  if (!processes.first()) {
    stats.disable();
    output.silence();
    set_progress_mode(ProgressMode::kNone);
  }
  if (directory && what == std::vector<std::string>{"kfac"}) {
    run_decoder_kfac(options, processes, stats, output);
    return stats.commit(output);
  }
  ProblemOptions problem_options;
  problem_options.parameters = options.list("parameters");
  problem_options.ignore = options.list("ignore");
  const std::string per = options.text("per");
  problem_options.per = per == "model" ? Per::kModel : per == "layer" ? Per::kLayer : Per::kTensor;
  const Curvature curvature = curvature_of(options.text("operator"));
  Problem problem = load_problem(options.positional("MODEL"), options, problem_options, output);
  check_statistics(problem, what, options);
  CurvatureOptions curvature_options;
  if (options.flag("dry-run") || options.has("max-memory")) {
    const MemoryPlan plan = plan_memory(problem, curvature, what, options);
    output.results()["memory"] = plan.json();
    if (options.flag("dry-run")) {
      output.text(plan.text(output.color()));
      return plan.check();
    }
    plan.check();
    problem = problem.with_chunk_size(plan.chunk_size);
    curvature_options.kept_graphs = plan.keeps_graph ? 1 : 0;
  }

  const CurvatureProvenance provenance =
      provenance_of(options, problem.data(), problem.num_terms(), dtype_of(problem.options()));
  state_data(provenance, options, processes, output.results());
  output.results()["parameters"] = problem.dimension();
  processes.split(problem);
  const bool kfac = std::erase(what, "kfac") > 0;
  if (!what.empty()) {
    state_problem(problem, curvature, options, processes, output);
    CurvatureOperator local(problem, curvature, curvature_options);
    const std::unique_ptr<LinearOperator> joined = processes.joined(local);
    LinearOperator& op = joined ? *joined : local;
    stats.know(compute_statistics(op, what, options, output), problem.parameters());
  }
  if (kfac && directory) {
    run_decoder_kfac(options, processes, stats, output);
  } else if (kfac) {
    run_problem_kfac(problem, provenance, options, processes, stats, output);
  } else {
    stats.begin(output, provenance, {});
  }
  stats.commit(output);
}

int run(const Options& options, Output& output) {
  if (options.given("merge")) {
    merge_stats(options, output);
    return 0;
  }
  compute(options, output);
  if (options.has("report") && !options.flag("dry-run") && !output.silent()) {
    write_file(options.text("report"), hessian_page(output.document()));
    output.text("\nreport: " + options.text("report") + "\n");
  }
  return 0;
}

}  // namespace

const Command kHessianCommand = {
    "hessian", "trace, diagonal, top eigenvalues, density, blocks, K-FAC", declare, run};

}  // namespace curvq::cli
