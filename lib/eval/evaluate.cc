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
  double nll = 0, kl = 0, agree = 0;
};

// Sums over the positions of one window for each model, and for the reference at the end, if there
// is one; hidden[i] [t, hidden] is of model i, the reference's last.
std::vector<WindowSums> sum_window(const std::vector<const DecoderModel*>& models,
                                   bool has_reference, const std::vector<torch::Tensor>& hidden,
                                   const torch::Tensor& ids) {
  std::vector<WindowSums> sums(models.size());
  const int64_t t = ids.size(0);
  for (int64_t begin = 0; begin < t; begin += kLogitRows) {
    const int64_t rows = std::min(kLogitRows, t - begin);
    const int64_t predicted = std::min(rows, t - 1 - begin);
    torch::Tensor p;
    for (size_t i = models.size(); i-- > 0;) {
      const torch::Tensor q =
          torch::log_softmax(models[i]->logits(hidden[i].narrow(0, begin, rows)), -1);
      if (predicted > 0) {
        const torch::Tensor next = ids.narrow(0, begin + 1, predicted).unsqueeze(1);
        sums[i].nll -=
            q.narrow(0, 0, predicted).gather(1, next).to(torch::kFloat64).sum().item<double>();
      }
      if (!has_reference) continue;
      if (!p.defined()) p = q;  // the reference's turn
      sums[i].kl += (p.exp() * (p - q)).sum(-1).to(torch::kFloat64).sum().item<double>();
      sums[i].agree += (p.argmax(-1) == q.argmax(-1)).sum().item<double>();
    }
  }
  return sums;
}

EvalResult result_of(const std::vector<WindowSums>& windows, int64_t length) {
  std::vector<double> nll, kl, agree;
  for (const WindowSums& sums : windows) {
    nll.push_back(sums.nll / static_cast<double>(length - 1));
    kl.push_back(sums.kl / static_cast<double>(length));
    agree.push_back(sums.agree / static_cast<double>(length));
  }
  EvalResult result;
  std::tie(result.nll, result.nll_stderr) = mean_and_stderr(nll);
  result.perplexity = std::exp(result.nll);
  result.perplexity_stderr = result.perplexity * result.nll_stderr;
  result.windows = static_cast<int64_t>(windows.size());
  result.tokens = result.windows * (length - 1);
  std::tie(result.kl_mean, result.kl_stderr) = mean_and_stderr(kl);
  std::tie(result.top1_agreement, result.top1_stderr) = mean_and_stderr(agree);
  return result;
}

}  // namespace

EvalResult evaluate(const DecoderModel& model, const TokenWindows& windows,
                    const DecoderModel* reference) {
  return evaluate(std::vector<const DecoderModel*>{&model}, windows, reference).front();
}

std::vector<EvalResult> evaluate(const std::vector<const DecoderModel*>& models,
                                 const TokenWindows& windows, const DecoderModel* reference) {
  torch::NoGradGuard no_grad;
  at::set_num_threads(num_threads());
  std::vector<const DecoderModel*> all = models;
  if (reference != nullptr) all.push_back(reference);
  for (const DecoderModel* model : all) {
    check_windows(*model, windows);
    if (reference != nullptr && reference->config().vocab_size != model->config().vocab_size) {
      throw UsageError(
          format("the reference has %lld tokens in its vocabulary, the model %lld; their "
                 "distributions cannot be compared",
                 static_cast<long long>(reference->config().vocab_size),
                 static_cast<long long>(model->config().vocab_size)));
    }
  }
  const int64_t n = windows.num_windows, t = windows.length;
  const int64_t batch = std::max<int64_t>(1, kBatchTokens / t);
  std::vector<std::vector<WindowSums>> sums(all.size());  // of each model's windows
  Progress progress("evaluating", n);
  for (int64_t begin = 0; begin < n; begin += batch) {
    const int64_t count = std::min(batch, n - begin);
    torch::Tensor ids = torch::empty({count, t}, torch::kInt64);
    for (int64_t i = 0; i < count * t; ++i) ids.data_ptr<int64_t>()[i] = windows.ids[begin * t + i];
    std::vector<torch::Tensor> hidden;
    for (const DecoderModel* model : all) hidden.push_back(model->hidden_states(ids));
    for (int64_t i = 0; i < count; ++i) {
      std::vector<torch::Tensor> of_window;
      for (const torch::Tensor& h : hidden) of_window.push_back(h[i]);
      const std::vector<WindowSums> found =
          sum_window(all, reference != nullptr, of_window, ids[i]);
      for (size_t m = 0; m < all.size(); ++m) {
        if (!std::isfinite(found[m].nll) || !std::isfinite(found[m].kl)) {
          throw NumericalError(format("%s: the logits of window %lld are not finite",
                                      all[m]->checkpoint().path().c_str(),
                                      static_cast<long long>(begin + i)));
        }
        sums[m].push_back(found[m]);
      }
      progress.advance();
    }
  }
  std::vector<EvalResult> results;
  for (size_t m = 0; m < models.size(); ++m) {
    results.push_back(result_of(sums[m], t));
    results.back().has_reference = reference != nullptr;
    if (reference != nullptr)
      results.back().reference_perplexity = result_of(sums.back(), t).perplexity;
  }
  return results;
}

}  // namespace curvq
