#include "bench_curvature.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "bench_rounds.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/curvature/curvature_operator.h"
#include "curvq/curvature/eigen.h"
#include "curvq/curvature/finite_difference.h"
#include "curvq/curvature/memory.h"
#include "curvq/curvature/statistics.h"
#include "curvq/curvature/trace.h"
#include "curvq/report/numbers.h"
#include "curvq/report/table.h"

namespace curvq::cli {
namespace {

using torch::autograd::grad;

void gradient_once(const Problem& problem) {
  for (int64_t i = 0; i < problem.num_chunks(); ++i) {
    const Batch batch = problem.chunk(i);
    grad({problem.loss_of(batch, problem.outputs(batch))}, problem.values());
  }
}

// What one writes by hand: the gradient with its graph, then the derivatives of g^T v.
void double_backward(const Problem& problem, const torch::Tensor& v, int products = 1) {
  for (int64_t i = 0; i < problem.num_chunks(); ++i) {
    const Batch batch = problem.chunk(i);
    const torch::Tensor loss = problem.loss_of(batch, problem.outputs(batch));
    const auto gradient = grad({loss}, problem.values(), {}, true, /*create_graph=*/true);
    for (int i = 1; i <= products; ++i)
      grad(gradient, problem.values(), problem.split(v), /*retain_graph=*/i < products);
  }
}

template <typename Work>
int64_t peak_bytes(Work&& work) {
  const MemoryWatch watch;
  work();
  return watch.peak_bytes();
}

void show(const std::vector<Contender>& contenders, const Contender& forward,
          const Contender& gradient, Output& output) {
  using Align = Table::Align;
  Table table({{"CPU time of", Align::kLeft},
               {"seconds", Align::kRight},
               {"gradients", Align::kRight},
               {"forwards", Align::kRight}});
  for (const Contender& contender : contenders) {
    const double seconds = contender.median();
    output.results()[contender.key] = seconds;
    table.add_row({contender.title, format("%.4g", seconds),
                   format("%.2f", seconds / gradient.median()),
                   format("%.2f", seconds / forward.median())});
  }
  output.text(table.str(output.color()));
}

void state(const Problem& problem, const Options& options, Output& output) {
  OrderedJson& results = output.results();
  results["rounds"] = options.integer("rounds");
  results["parameters"] = problem.dimension();
  results["samples"] = problem.num_samples();
  output.text(format("%s: %lld parameters, %lld samples; median of %lld rounds\n",
                     problem.model().name.c_str(), static_cast<long long>(problem.dimension()),
                     static_cast<long long>(problem.num_samples()),
                     static_cast<long long>(options.integer("rounds"))));
}

uint64_t seed_of(const Options& options) { return static_cast<uint64_t>(options.integer("seed")); }

// Forward, gradient and one estimator, which returns the products it took.
struct Estimation {
  std::vector<Contender> contenders;
  std::vector<double> products;

  Estimation(const Problem& problem, const char* title, std::function<int64_t(uint64_t run)> work)
      : contenders({{"forward_seconds", "forward", [&problem] { problem.value(); }},
                    {"gradient_seconds", "gradient", [&problem] { gradient_once(problem); }},
                    {"seconds", title, [this, work = std::move(work)] {
                       products.push_back(static_cast<double>(work(products.size())));
                     }}}) {}
  Estimation(const Estimation&) = delete;
  Estimation& operator=(const Estimation&) = delete;

  void run(const char* label, const Options& options, Output& output) {
    measure_rounds(contenders, "seconds", options, label);
    show(contenders, contenders[0], contenders[1], output);
    const double each = contenders[2].median() / median_of(products);
    output.results()["products"] = median_of(products);
    output.results()["product_over_gradient"] = each / contenders[1].median();
    output.text(format("%g products, each %.2f gradients, graph and estimator counted\n",
                       median_of(products), each / contenders[1].median()));
  }
};

}  // namespace

int bench_hvp(const Problem& problem, const Options& options, Output& output) {
  constexpr int64_t kFewestRounds = 20;
  if (options.integer("rounds") < kFewestRounds) {
    throw UsageError(options.where("rounds") +
                     format(" %lld: bench hvp needs %lld or more",
                            static_cast<long long>(options.integer("rounds")),
                            static_cast<long long>(kFewestRounds)));
  }
  const torch::Tensor v =
      torch::randn({1, problem.dimension()}, make_generator(seed_of(options)), problem.options());
  const int64_t all = problem.num_chunks();
  OrderedJson& results = output.results();
  OrderedJson memory;
  memory["gradient_bytes"] = peak_bytes([&] { gradient_once(problem); });
  memory["double_backward_bytes"] = peak_bytes([&] { double_backward(problem, v[0]); });
  memory["double_backward_kept_bytes"] = peak_bytes([&] { double_backward(problem, v[0], 2); });
  memory["hvp_bytes"] = peak_bytes(
      [&] { CurvatureOperator(problem, Curvature::kHessian, {.kept_graphs = 0}).apply(v); });
  memory["hvp_kept_bytes"] = peak_bytes([&] {
    CurvatureOperator op(problem, Curvature::kHessian, {.kept_graphs = all});
    for (int product = 0; product < 2; ++product) op.apply(v);
  });

  CurvatureOperator reused(problem, Curvature::kHessian, {.kept_graphs = all});
  CurvatureOperator rebuilt(problem, Curvature::kHessian, {.kept_graphs = 0});
  CurvatureOperator ggn(problem, Curvature::kGaussNewton, {.kept_graphs = all});
  const double difference = finite_difference_error(problem, v[0], rebuilt.apply(v)[0]);
  log_info(format("the product differs from a finite difference by %.2g", difference));

  std::vector<Contender> contenders = {
      {"forward_seconds", "forward", [&] { problem.value(); }},
      {"gradient_seconds", "gradient", [&] { gradient_once(problem); }},
      {"hvp_seconds", "H v, graph kept", [&] { reused.apply(v); }},
      {"hvp_rebuilt_seconds", "H v, graph rebuilt", [&] { rebuilt.apply(v); }},
      {"double_backward_seconds", "double backward by hand",
       [&] { double_backward(problem, v[0]); }},
      {"ggn_seconds", "G v, graph kept", [&] { ggn.apply(v); }}};
  measure_rounds(contenders, "gradient_seconds", options, "bench hvp");
  const Contender &forward = contenders[0], &gradient = contenders[1];
  results["hvp_over_gradient"] = contenders[2].median() / gradient.median();
  results["hvp_rebuilt_over_gradient"] = contenders[3].median() / gradient.median();
  results["ggn_over_gradient"] = contenders[5].median() / gradient.median();
  results["gradient_over_forward"] = gradient.median() / forward.median();
  results["hvp_over_forward"] = contenders[2].median() / forward.median();
  results["finite_difference_error"] = difference;
  results["memory"] = memory;
  show(contenders, forward, gradient, output);
  const auto bytes = [&](const char* key) { return memory[key].get<int64_t>(); };
  output.text(format(
      "at most allocated: gradient %s, double backward by hand %s, H v %s; with the graph "
      "kept by hand %s, H v %s\n",
      bytes_text(bytes("gradient_bytes")).c_str(),
      bytes_text(bytes("double_backward_bytes")).c_str(), bytes_text(bytes("hvp_bytes")).c_str(),
      bytes_text(bytes("double_backward_kept_bytes")).c_str(),
      bytes_text(bytes("hvp_kept_bytes")).c_str()));
  state(problem, options, output);
  return 0;
}

int bench_eigen(const Problem& problem, const Options& options, Output& output) {
  EigenOptions eigen;
  eigen.tolerance = options.number("tol");
  const auto find = [&](uint64_t seed) {
    CurvatureOperator op(problem, Curvature::kHessian);
    return lanczos_eigenvalues(op, eigen, make_generator(seed));
  };
  eigen.tolerance /= 1000;
  const double truth = find(seed_of(options)).pairs[0].value;
  eigen.tolerance *= 1000;
  double worst = 0;
  Estimation estimation(problem, "largest eigenvalue", [&](uint64_t run) {
    const EigenResult found = find(seed_of(options) + run);
    worst = std::max(worst, std::abs(found.pairs[0].value - truth) / std::abs(truth));
    return found.iterations;
  });
  estimation.run("bench eigen", options, output);
  output.results()["value"] = truth;
  output.results()["largest_error"] = worst;
  output.text(format("%.8g, at worst %.1g of it off\n", truth, worst));
  state(problem, options, output);
  return 0;
}

int bench_trace(const Problem& problem, const Options& options, Output& output) {
  TraceOptions trace;
  trace.probes = options.integer("probes");
  trace.deflate = options.integer("deflate");
  std::vector<double> values, errors;
  Estimation estimation(problem, "trace", [&](uint64_t run) {
    CurvatureOperator op(problem, Curvature::kHessian);
    const TraceResult found = hutchinson_trace(op, trace, make_generator(seed_of(options) + run));
    values.push_back(found.trace.value);
    errors.push_back(found.trace.standard_error);
    return found.products;
  });
  estimation.run("bench trace", options, output);
  double mean = 0, square = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  for (const double error : errors) square += error * error / static_cast<double>(errors.size());
  // Time and squared error are inverse to each other.
  const double seconds = estimation.contenders[2].median() * square / std::pow(0.01 * mean, 2);
  OrderedJson& results = output.results();
  results["value"] = mean;
  results["stderr"] = std::sqrt(square);
  results["seconds_to_one_percent"] = seconds;
  output.text(format("%s +- %s; %s CPU seconds to a standard error of 1 %%\n",
                     number_text(mean).c_str(), number_text(std::sqrt(square), 2).c_str(),
                     number_text(seconds).c_str()));
  state(problem, options, output);
  return 0;
}

}  // namespace curvq::cli
