// How good a model is: perplexity, and how far it is from a reference model.
#pragma once

#include <cstdint>
#include <vector>

#include "curvq/io/token_windows.h"

namespace curvq {

class DecoderModel;

// Standard errors take windows as independent and tokens within one as not: they come from the
// spread of the window means. NaN with fewer than two windows.
struct EvalResult {
  double nll = 0;  // mean -log p(next token), nats, over tokens that have a predecessor
  double nll_stderr = 0;
  double perplexity = 0;         // exp(nll)
  double perplexity_stderr = 0;  // perplexity * nll_stderr (delta method)
  int64_t tokens = 0;            // predicted tokens: windows * (length - 1)
  int64_t windows = 0;

  bool has_reference = false;
  // KL(reference || model), nats, mean over all positions (windows * length).
  double kl_mean = 0, kl_stderr = 0;
  double top1_agreement = 0, top1_stderr = 0;  // share of positions with the same most likely token
  double reference_perplexity = 0;
};

// Each window by itself, no BOS added, float32 with double accumulation. `reference` may be null;
// it must have the same vocabulary (else UsageError). Throws UsageError for windows longer than a
// model's positions or shorter than 2, NumericalError if logits are not finite, naming the window.
EvalResult evaluate(const DecoderModel& model, const TokenWindows& windows,
                    const DecoderModel* reference);

// The same for several models of one vocabulary; the reference's logits are computed once.
std::vector<EvalResult> evaluate(const std::vector<const DecoderModel*>& models,
                                 const TokenWindows& windows, const DecoderModel* reference);

}  // namespace curvq
