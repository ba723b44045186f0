// curvq bench: what things cost, as ratios.
#include <time.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "bench_gemm.h"
#include "bench_gemm_gpu.h"
#include "commands.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/core/progress.h"
#include "curvq/curvature/curvature_operator.h"
#include "curvq/curvature/finite_difference.h"
#include "curvq/curvature/statistics.h"
#include "curvq/report/table.h"
#include "digits.h"
#include "problem.h"

namespace curvq::cli {
namespace {

// One thing to measure and its CPU seconds, one a round.
struct Contender {
  const char* key;
  const char* title;
  std::function<void()> work;
  std::vector<double> seconds;

  double median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    const size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
};

double process_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double time_of(const std::function<void()>& work, int64_t times) {
  const double begin = process_seconds();
  for (int64_t i = 0; i < times; ++i) work();
  return (process_seconds() - begin) / static_cast<double>(times);
}

void gradient_once(const Problem& problem) {
  for (int64_t i = 0; i < problem.num_chunks(); ++i) {
    const Batch batch = problem.chunk(i);
    torch::autograd::grad({problem.loss_of(batch, problem.outputs(batch))}, problem.values());
  }
}

void declare(Options& options) {
  options
      .add_positional("WHAT",
                      "hvp: a product with the Hessian beside a gradient and a forward pass; gemm: "
                      "products with packed weights beside the machine's limits")
      .add_optional_positional("MODEL",
                               "model directory or TorchScript .pt (default: the digits MLP)");
  declare_bench_gemm(options);
  add_problem_options(options);
  options
      .add_integer("rounds", "N", "measurements of each, interleaved; the median counts", 20, 10000,
                   21)
      .add_flag("model-gpu", "gemm: bounds of the CUDA kernels on GPUs that are not here")
      .add_seed()
      .add_threads()
      .add_device()
      .add_example("bench hvp --threads 1")
      .add_example("bench gemm --threads 1 --shapes 1,4096,4096 --formats nvfp4,int4")
      .add_example("bench gemm --model-gpu");
}

int bench_hvp(const Options& options, Output& output) {
  at::set_num_threads(num_threads());
  const std::string path = options.positional("MODEL");
  if (path.empty() && options.given("data"))
    throw UsageError("--data without a MODEL: the digits MLP brings its own");
  const Problem problem =
      path.empty() ? digits_problem() : load_problem(path, options, ProblemOptions{}, output);

  const torch::Generator generator = make_generator(static_cast<uint64_t>(options.integer("seed")));
  const torch::Tensor v = torch::randn({1, problem.dimension()}, generator, problem.options());
  const int64_t all = problem.num_chunks();
  CurvatureOperator reused(problem, Curvature::kHessian, {.kept_graphs = all});
  CurvatureOperator rebuilt(problem, Curvature::kHessian, {.kept_graphs = 0});
  CurvatureOperator ggn(problem, Curvature::kGaussNewton, {.kept_graphs = all});
  const double difference = finite_difference_error(problem, v[0], rebuilt.apply(v)[0]);
  log_info(format("the product differs from a finite difference by %.2g", difference));

  std::vector<Contender> contenders = {
      {"forward_seconds", "forward", [&] { problem.value(); }, {}},
      {"gradient_seconds", "gradient", [&] { gradient_once(problem); }, {}},
      {"hvp_seconds", "H v, graph kept", [&] { reused.apply(v); }, {}},
      {"hvp_rebuilt_seconds", "H v, graph rebuilt", [&] { rebuilt.apply(v); }, {}},
      {"ggn_seconds", "G v, graph kept", [&] { ggn.apply(v); }, {}}};
  for (Contender& contender : contenders) contender.work();  // warms up
  constexpr double kLongEnough = 0.01;  // seconds; the clock ticks in microseconds at worst
  const int64_t times = std::max<int64_t>(
      1, std::llround(kLongEnough / std::max(1e-6, time_of(contenders[1].work, 1))));
  const int64_t rounds = options.integer("rounds");
  {
    Progress progress("bench hvp", rounds);
    for (int64_t round = 0; round < rounds; ++round) {
      for (Contender& contender : contenders)
        contender.seconds.push_back(time_of(contender.work, times));
      progress.advance();
    }
  }

  const double forward = contenders[0].median(), gradient = contenders[1].median();
  OrderedJson& results = output.results();
  results["hvp_over_gradient"] = contenders[2].median() / gradient;
  results["hvp_rebuilt_over_gradient"] = contenders[3].median() / gradient;
  results["ggn_over_gradient"] = contenders[4].median() / gradient;
  results["gradient_over_forward"] = gradient / forward;
  results["finite_difference_error"] = difference;
  results["rounds"] = rounds;
  results["parameters"] = problem.dimension();
  results["samples"] = problem.num_samples();
  using Align = Table::Align;
  Table table({{"CPU time of", Align::kLeft},
               {"seconds", Align::kRight},
               {"gradients", Align::kRight},
               {"forwards", Align::kRight}});
  for (const Contender& contender : contenders) {
    const double seconds = contender.median();
    results[contender.key] = seconds;
    table.add_row({contender.title, format("%.4g", seconds), format("%.2f", seconds / gradient),
                   format("%.2f", seconds / forward)});
  }
  output.text(table.str(output.color()) +
              format("%s: %lld parameters, %lld samples; median of %lld rounds\n",
                     problem.model().name.c_str(), static_cast<long long>(problem.dimension()),
                     static_cast<long long>(problem.num_samples()),
                     static_cast<long long>(rounds)));
  return 0;
}

int run(const Options& options, Output& output) {
  const std::string what = options.positional("WHAT");
  if (what == "hvp") return bench_hvp(options, output);
  if (what == "gemm")
    return options.flag("model-gpu") ? bench_gemm_gpu(options, output)
                                     : run_bench_gemm(options, output);
  throw UsageError("bench knows hvp and gemm, not '" + what + "'");
}

}  // namespace

const Command kBenchCommand = {
    "bench", "what products with the Hessian and with packed weights cost", declare, run};

}  // namespace curvq::cli
