#include "curvq/eval/evaluate.h"

#include <cmath>
#include <string>
#include <vector>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/core/progress.h"
#include "curvq/nn/decoder.h"

namespace curvq {
namespace {

// Bounds the residual streams and logits in memory.
constexpr int64_t kBatchTokens = 1 << 16;
constexpr int64_t kLogitRows = 128;

void check_windows(const DecoderModel& model, const TokenWindows& windows) {
  if (windows.length < 2)
    throw UsageError(windows.origin + ": windows of one token predict nothing; use longer ones");
  if (windows.length > model.config().max_positions) {
    throw UsageError(format(
        "%s: windows of %lld tokens exceed the %lld positions of %s; set --max-length",
        windows.origin.c_str(), static_cast<long long>(windows.length),
        static_cast<long long>(model.config().max_positions), model.checkpoint().path().c_str()));
  }
}

// Mean and standard error of window means.
std::pair<double, double> mean_and_stderr(const std::vector<double>& values) {
  const double n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  const double mean = sum / n;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return {mean, values.size() < 2 ? std::nan("") : std::sqrt(squares / (n - 1) / n)};
}

struct WindowSums {
  double nll = 0, reference_nll = 0, kl = 0, agree = 0;
};

// Sums over the positions of one window; hidden [t, hidden].
WindowSums sum_window(const DecoderModel& model, const torch::Tensor& hidden,
                      const DecoderModel* reference, const torch::Tensor& reference_hidden,
                      const torch::Tensor& ids) {
  WindowSums sums;
  const int64_t t = hidden.size(0);
  const auto log_probabilities = [](const DecoderModel& m, const torch::Tensor& h) {
    return torch::log_softmax(m.logits(h), -1);
  };
  const auto nll = [&](const torch::Tensor& logp, int64_t begin) {
    const int64_t count = std::min(logp.size(0), t - 1 - begin);
    if (count <= 0) return 0.0;
    const torch::Tensor next = ids.narrow(0, begin + 1, count).unsqueeze(1);
    return -logp.narrow(0, 0, count).gather(1, next).to(torch::kFloat64).sum().item<double>();
  };
  for (int64_t begin = 0; begin < t; begin += kLogitRows) {
    const int64_t rows = std::min(kLogitRows, t - begin);
    const torch::Tensor q = log_probabilities(model, hidden.narrow(0, begin, rows));
    sums.nll += nll(q, begin);
    if (reference == nullptr) continue;
    const torch::Tensor p = log_probabilities(*reference, reference_hidden.narrow(0, begin, rows));
    sums.reference_nll += nll(p, begin);
    sums.kl += (p.exp() * (p - q)).sum(-1).to(torch::kFloat64).sum().item<double>();
    sums.agree += (p.argmax(-1) == q.argmax(-1)).sum().item<double>();
  }
  return sums;
}

}  // namespace

EvalResult evaluate(const DecoderModel& model, const TokenWindows& windows,
                    const DecoderModel* reference) {
  torch::NoGradGuard no_grad;
  at::set_num_threads(num_threads());
  check_windows(model, windows);
  if (reference != nullptr) {
    check_windows(*reference, windows);
    if (reference->config().vocab_size != model.config().vocab_size) {
      throw UsageError(
          format("the reference has %lld tokens in its vocabulary, the model %lld; their "
                 "distributions cannot be compared",
                 static_cast<long long>(reference->config().vocab_size),
                 static_cast<long long>(model.config().vocab_size)));
    }
  }
  const int64_t n = windows.num_windows, t = windows.length;
  const int64_t batch = std::max<int64_t>(1, kBatchTokens / t);
  std::vector<double> nll, reference_nll, kl, agree;
  Progress progress("evaluating", n);
  for (int64_t begin = 0; begin < n; begin += batch) {
    const int64_t count = std::min(batch, n - begin);
    torch::Tensor ids = torch::empty({count, t}, torch::kInt64);
    for (int64_t i = 0; i < count * t; ++i) ids.data_ptr<int64_t>()[i] = windows.ids[begin * t + i];
    const torch::Tensor hidden = model.hidden_states(ids);
    const torch::Tensor reference_hidden =
        reference ? reference->hidden_states(ids) : torch::Tensor();
    for (int64_t i = 0; i < count; ++i) {
      const WindowSums sums = sum_window(model, hidden[i], reference,
                                         reference ? reference_hidden[i] : torch::Tensor(), ids[i]);
      if (!std::isfinite(sums.nll) || !std::isfinite(sums.kl)) {
        throw NumericalError(format("%s: the logits of window %lld are not finite",
                                    model.checkpoint().path().c_str(),
                                    static_cast<long long>(begin + i)));
      }
      nll.push_back(sums.nll / static_cast<double>(t - 1));
      reference_nll.push_back(sums.reference_nll / static_cast<double>(t - 1));
      kl.push_back(sums.kl / static_cast<double>(t));
      agree.push_back(sums.agree / static_cast<double>(t));
      progress.advance();
    }
  }
  EvalResult result;
  std::tie(result.nll, result.nll_stderr) = mean_and_stderr(nll);
  result.perplexity = std::exp(result.nll);
  result.perplexity_stderr = result.perplexity * result.nll_stderr;
  result.tokens = n * (t - 1);
  result.windows = n;
  result.has_reference = reference != nullptr;
  if (reference != nullptr) {
    std::tie(result.kl_mean, result.kl_stderr) = mean_and_stderr(kl);
    std::tie(result.top1_agreement, result.top1_stderr) = mean_and_stderr(agree);
    result.reference_perplexity = std::exp(mean_and_stderr(reference_nll).first);
  }
  return result;
}

}  // namespace curvq
