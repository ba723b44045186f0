// The table of model families.
#pragma once

#include <string>
#include <vector>

#include "curvq/nn/decoder_config.h"

namespace curvq {

// Which layers see a window of config.json's sliding_window only.
enum class SlidingLayers {
  kNone,       // the setting has no meaning
  kAll,        // where it is set
  kUpper,      // from max_window_layers on, if use_sliding_window; or by layer_types
  kAllButNth,  // but every sliding_window_pattern-th; or by layer_types
};

struct Family {
  DecoderConfig config;  // `family`, and what config.json leaves unsaid
  SlidingLayers sliding = SlidingLayers::kNone;
  int64_t sliding_pattern = 0;     // where config.json does not say
  bool scales_embeddings = false;  // by sqrt(hidden_size)
  bool rotates = true;             // queries and keys
  int64_t times_wide = 0;          // intermediate_size / hidden_size, if that may be unsaid
};

const std::vector<Family>& families();
// Null for one that is not in the table.
const Family* find_family(const std::string& model_type);

}  // namespace curvq
