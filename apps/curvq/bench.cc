// curvq bench: what things cost, as ratios.
#include <torch/torch.h>

#include "bench_curvature.h"
#include "bench_factors.h"
#include "bench_formats.h"
#include "bench_gemm.h"
#include "bench_gemm_gpu.h"
#include "bench_rounds.h"
#include "commands.h"
#include "curvq/core/error.h"
#include "curvq/core/parallel.h"
#include "digits.h"
#include "problem.h"

namespace curvq::cli {
namespace {

void declare(Options& options) {
  options
      .add_positional(
          "WHAT",
          "hvp: a product with the Hessian beside a gradient and a forward pass; eigen, trace: the "
          "largest eigenvalue, the trace; factors: the K-FAC factors A of a model directory beside "
          "its forward pass; gemm: products with packed weights beside the machine's limits; "
          "formats: rounding "
          "matrices to every number format, and back")
      .add_optional_positional("MODEL",
                               "model directory or TorchScript .pt (default: the digits MLP)");
  declare_bench_gemm(options);
  add_problem_options(options);
  add_round_options(options);
  options.add_number("tol", "T", "eigen: error, relative to the eigenvalue", 1e-14, 0.5, 1e-3)
      .add_integer("probes", "N", "trace: random vectors", 2, int64_t{1} << 30, 30)
      .add_integer("deflate", "N", "trace: Lanczos vectors whose part of it is exact", 0, 1000, 0)
      .add_flag("model-gpu", "gemm: bounds of the CUDA kernels on GPUs that are not here")
      .add_seed()
      .add_threads()
      .add_device()
      .add_example("bench hvp --threads 1")
      .add_example("bench factors SmolLM2-135M --data ids.safetensors --num-samples 32 --rounds 3")
      .add_example("bench gemm --threads 1 --shapes 1,4096,4096 --formats nvfp4,int4")
      .add_example("bench gemm --model-gpu")
      .add_example("bench formats --threads 1");
}

int run(const Options& options, Output& output) {
  const std::string what = options.positional("WHAT"), path = options.positional("MODEL");
  if (what == "gemm") {
    return options.flag("model-gpu") ? bench_gemm_gpu(options, output)
                                     : run_bench_gemm(options, output);
  }
  for (const char* name : {"shapes", "formats", "report", "model-gpu"}) {
    if (options.given(name)) throw UsageError(options.where(name) + " is for bench gemm");
  }
  if (what == "formats") return bench_formats(options, output);
  if (what != "hvp" && what != "eigen" && what != "trace" && what != "factors")
    throw UsageError("bench knows hvp, eigen, trace, factors, gemm and formats, not '" + what +
                     "'");
  at::set_num_threads(num_threads());
  if (what == "factors") return bench_factors(options, output);
  if (path.empty() && options.given("data"))
    throw UsageError("--data without a MODEL: the digits MLP brings its own");
  const Problem problem =
      path.empty() ? digits_problem() : load_problem(path, options, ProblemOptions{}, output);
  return what == "hvp"     ? bench_hvp(problem, options, output)
         : what == "eigen" ? bench_eigen(problem, options, output)
                           : bench_trace(problem, options, output);
}

}  // namespace

const Command kBenchCommand = {"bench", "what curvature and products with packed weights cost",
                               declare, run};

}  // namespace curvq::cli
