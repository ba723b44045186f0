// curvq hessian: curvature statistics of a model on data.
#include <torch/torch.h>

#include <algorithm>

#include "commands.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/curvature/curvature_operator.h"
#include "curvq/report/numbers.h"
#include "hessian_statistics.h"
#include "memory_plan.h"
#include "problem.h"

namespace curvq::cli {
namespace {

const std::vector<std::string> kStatistics = {"trace", "diagonal", "eigen", "density", "blocks"};

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
                       "': must be some of trace, diagonal, eigen, density, blocks, with commas");
    }
    if (std::find(what.begin(), what.end(), name) == what.end()) what.push_back(name);
  }
  return what;
}

void declare(Options& options) {
  options.add_positional("MODEL",
                         "model directory (quantized layers are dequantized) or TorchScript .pt");
  add_problem_options(options);
  options.add_group("what to compute")
      .add_choice("operator", {"hessian", "ggn", "fisher", "empirical-fisher"},
                  "the matrix: second derivatives, Gauss-Newton, Fisher with the expectation over "
                  "the model's own labels, or with the data's labels",
                  "hessian")
      .add_text("what", "LIST", "some of trace, diagonal, eigen, density, blocks, with commas",
                "trace,eigen")
      .add_list(
          "parameters", "PATTERN",
          "differentiate by these only: a glob or re:EXPRESSION over parameter names; repeatable")
      .add_list("ignore", "PATTERN", "leave these parameters out; repeatable")
      .add_choice("per", {"model", "layer", "tensor"}, "what the table and `layers` have a row for",
                  "layer")
      .add_flag("exact", "from the whole matrix, entry by entry: small nets only")
      .add_integer("probes", "N", "random vectors for trace, diagonal, density and blocks", 2,
                   int64_t{1} << 30, 30)
      .add_flag(
          "probe-per-block",
          "give each row of the table probes of its own: a far smaller error of its trace, for "
          "as many times the work")
      .add_integer("top-k", "K", "eigenvalues of largest magnitude", 1, 1000, 5)
      .add_number("tol", "T", "error of eigenvalues, relative to the largest", 1e-14, 0.5, 1e-3)
      .add_integer("max-products", "N", "give up on eigenvalues behind so many products", 3,
                   int64_t{1} << 40, 1000)
      .add_integer("steps", "N", "Lanczos steps a probe, for the density", 2, 1000, 30);
  options.add_group("how")
      .add_max_memory()
      .add_dry_run()
      .add_seed()
      .add_threads()
      .add_device()
      .add_example("hessian net.pt --data digits.safetensors --what trace,eigen,density")
      .add_example("hessian SmolLM2-135M --data text.txt --max-length 128 --num-samples 4");
}

int run(const Options& options, Output& output) {
  at::set_num_threads(num_threads());
  const std::vector<std::string> what = split_what(options);
  options.text("data");
  ProblemOptions problem_options;
  problem_options.parameters = options.list("parameters");
  problem_options.ignore = options.list("ignore");
  const std::string per = options.text("per");
  problem_options.per = per == "model" ? Per::kModel : per == "layer" ? Per::kLayer : Per::kTensor;
  const Curvature curvature = curvature_of(options.text("operator"));
  Problem problem = load_problem(options.positional("MODEL"), options, problem_options, output);
  check_statistics(problem, options);
  CurvatureOptions curvature_options;
  if (options.flag("dry-run") || options.has("max-memory")) {
    const MemoryPlan plan = plan_memory(problem, curvature, what, options);
    output.results()["memory"] = plan.json();
    if (options.flag("dry-run")) {
      output.text(plan.text(output.color()));
      plan.check();
      return 0;
    }
    plan.check();
    problem = problem.with_chunk_size(plan.chunk_size);
    curvature_options.kept_graphs = plan.keeps_graph ? 1 : 0;
  }

  const Problem::Gradient gradient = problem.gradient();
  OrderedJson& results = output.results();
  results["operator"] = curvature_name(curvature);
  results["loss"] = problem.loss().name();
  results["loss_value"] = gradient.value;
  results["gradient_norm"] = gradient.gradient.norm().item<double>();
  results["parameters"] = problem.dimension();
  results["samples"] = problem.num_samples();
  results["loss_terms"] = problem.num_terms();
  results["reduction"] = "mean over loss terms";
  results["dtype"] = problem.options().dtype() == torch::kFloat64 ? "float64" : "float32";
  results["exact"] = options.flag("exact");
  output.text(bold(problem.model().name, output.color()) +
              format("\n%s of the mean %s over %s loss terms (%s samples) by %s parameters, %s\n"
                     "loss %s, gradient norm %s\n",
                     curvature_name(curvature).c_str(), problem.loss().name().c_str(),
                     with_separators(problem.num_terms()).c_str(),
                     with_separators(problem.num_samples()).c_str(),
                     with_separators(problem.dimension()).c_str(),
                     results["dtype"].get<std::string>().c_str(),
                     number_text(gradient.value).c_str(),
                     number_text(results["gradient_norm"].get<double>()).c_str()));
  CurvatureOperator op(problem, curvature, curvature_options);
  compute_statistics(op, what, options, output);
  return 0;
}

}  // namespace

const Command kHessianCommand = {"hessian", "trace, diagonal, top eigenvalues, density, blocks",
                                 declare, run};

}  // namespace curvq::cli
