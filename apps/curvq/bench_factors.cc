#include "bench_factors.h"

#include <torch/torch.h>

#include <filesystem>

#include "bench_rounds.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/curvature/input_factors.h"
#include "curvq/report/table.h"
#include "data.h"

namespace curvq::cli {

int bench_factors(const Options& options, Output& output) {
  const std::string path = options.positional("MODEL");
  if (!std::filesystem::is_directory(path))
    throw UsageError("bench factors needs a model directory");
  const DecoderModel model(path, Engine::kDequantized);
  const TokenWindows windows = load_windows(options, "data", path, model.config());
  output.inputs()["model"] = {{"path", path}, {"hash", model.checkpoint().content_hash()}};
  output.inputs()["data"] = describe(windows);
  const torch::Tensor ids =
      torch::tensor(windows.ids).view({windows.num_windows, windows.length}).to(torch::kInt64);
  const torch::NoGradGuard no_grad;
  const auto head = [&](const torch::Tensor& stream) {
    for (int64_t window = 0; window < stream.size(0); ++window) model.logits(stream[window]);
  };
  torch::Tensor stream;
  std::vector<Contender> contenders = {
      {"forward_seconds", "forward pass", [&] { stream = model.hidden_states(ids); }},
      {"head_seconds", "output head", [&] { head(stream); }},
      {"factors_seconds", "forward pass with factors A",
       [&] { stream = input_factors(model, ids, [](const InputFactor&) {}); }}};
  measure_rounds(contenders, "forward_seconds", options, "bench factors");

  const InputFactorWork work = input_factor_work(model.config(), ids.size(1));
  const double forward = contenders[0].median(), of_head = contenders[1].median(),
               factors = contenders[2].median();
  OrderedJson& results = output.results();
  results = {{"factors_over_forward", (factors + of_head) / (forward + of_head)},
             {"factors_over_forward_without_head", factors / forward},
             {"bound", 1 + work.factors / (work.forward + work.head)},
             {"bound_without_head", 1 + work.factors / work.forward},
             {"tokens", ids.numel()},
             {"rounds", options.integer("rounds")}};
  using Align = Table::Align;
  Table table({{"CPU time of", Align::kLeft},
               {"seconds", Align::kRight},
               {"giga-operations/s", Align::kRight}});
  const std::vector<double> operations = {work.forward, work.head, work.forward + work.factors};
  for (size_t i = 0; i < contenders.size(); ++i) {
    const double seconds = contenders[i].median();
    results[contenders[i].key] = seconds;
    table.add_row(
        {contenders[i].title, format("%.4g", seconds),
         format("%.4g", 1e-9 * operations[i] * static_cast<double>(ids.numel()) / seconds)});
  }
  const auto ratio = [&](const char* key) { return results[key].get<double>(); };
  output.text(
      table.str(output.color()) +
      format("factors over forward pass: %.3f with the head (bound by operations %.2f), "
             "%.3f without (%.2f)\n%s: %lld windows of %lld tokens; median of %lld rounds\n",
             ratio("factors_over_forward"), ratio("bound"),
             ratio("factors_over_forward_without_head"), ratio("bound_without_head"), path.c_str(),
             static_cast<long long>(ids.size(0)), static_cast<long long>(ids.size(1)),
             static_cast<long long>(options.integer("rounds"))));
  return 0;
}

}  // namespace curvq::cli
