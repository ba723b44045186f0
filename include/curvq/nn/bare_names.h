// Checkpoints whose tensors are named as inside of the bare model: "h.0.ln_1" in the original files
// of gpt2, not "transformer.h.0.ln_1".
#pragma once

#include <functional>

#include "curvq/nn/decoder_config.h"

namespace curvq {

// Takes the first part off all names of the model (not the head's), where the checkpoint has the
// embeddings under such a name only. `has`: whether there is a tensor of that name.
void adopt_bare_names(DecoderNames& names, const std::function<bool(const std::string&)>& has);

}  // namespace curvq
