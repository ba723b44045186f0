#include "nn/model_ends.h"

namespace curvq {

torch::Tensor stream_of(const torch::Tensor& rows, const torch::Tensor& positions, int64_t begin,
                        const DecoderConfig& config) {
  torch::Tensor out = config.embedding_scale == 1 ? rows : rows * config.embedding_scale;
  if (!positions.defined()) return out;
  return out + positions.narrow(0, config.position_offset + begin, rows.size(-2));
}

torch::Tensor logits_of(const torch::Tensor& head_output, const DecoderConfig& config) {
  torch::Tensor out = head_output;
  if (config.logits_scale != 1) out = out * config.logits_scale;
  const double cap = config.logits_softcap;
  return cap > 0 ? torch::tanh(out / cap) * cap : out;
}

}  // namespace curvq
