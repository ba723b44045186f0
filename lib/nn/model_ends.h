// What a decoder does ahead of its first block and behind its output head.
#pragma once

#include <torch/torch.h>

#include "curvq/nn/decoder_config.h"

namespace curvq {

// embedding_scale rows + the learned positions from `begin` on.
//   rows [..., t, hidden] of the embedding; positions
//   [position_offset + max_positions, hidden] or undefined
torch::Tensor stream_of(const torch::Tensor& rows, const torch::Tensor& positions, int64_t begin,
                        const DecoderConfig& config);

// cap(logits_scale x), cap(x) = c tanh(x / c) with c = logits_softcap.
torch::Tensor logits_of(const torch::Tensor& head_output, const DecoderConfig& config);

}  // namespace curvq
