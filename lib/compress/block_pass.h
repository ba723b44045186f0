// A model's blocks, one after the other, with the calibration tokens on their way through them: the
// loop that everything that compresses layer by layer shares.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compress/layer_hessians.h"
#include "compress/layer_moments.h"
#include "compress/run_state.h"
#include "curvq/compress/capture.h"
#include "curvq/compress/layer_plan.h"
#include "curvq/io/token_windows.h"
#include "curvq/nn/decoder.h"

namespace curvq::internal {

// The linear layers of all blocks, in the order in which compress_blocks() comes to them.
std::vector<LayerShape> linear_shapes(const DecoderModel& model);

// [num_windows, length] int64.
torch::Tensor window_ids(const TokenWindows& windows);

struct PassOptions {
  CaptureOptions capture;
  double damping = 0.01;                      // of the Hessian that corrections are solved with
  const TokenWindows* calibration = nullptr;  // null: no Hessians, unless from statistics
  std::string label;                          // of the progress line
  const LayerHessians* stats = nullptr;       // instead of calibration
  bool hessians = true;                       // and all that is made with them are wanted
  bool input_amax = false;                    // LayerMoments::input_amax is wanted
  bool output_factors = false;                // LayerMoments::output_factor is wanted
  int64_t held_out = 0;                       // windows, the last ones, that only judge
  std::string scratch;                        // directory for the output factors of all layers
  RunState* state = nullptr;                  // kept behind each block, and gone on from
  int64_t num_blocks = -1;                    // only so many; -1: all
};

// float32 values in memory: the weights of a block, the activations, and the moments of a layer.
int64_t pass_floats(const DecoderConfig& config, const PassOptions& options);

// The state of a run over this model and pass.calibration; null without a directory. Throws as
// RunState() does.
std::unique_ptr<RunState> open_state(const StateOptions& options, const DecoderModel& model,
                                     const PassOptions& pass);

// Throws UsageError where windows are longer than the model allows, ResourceError where
// `predicted_bytes` are above `max_bytes` (0: no limit). Warns of tokens that are too few for one
// of the `layers`.
void check_pass(const DecoderModel& model, const PassOptions& options,
                const std::vector<LayerShape>& layers, int64_t predicted_bytes, int64_t max_bytes);

// Whether layer NAME is to be compressed.
using Wanted = std::function<bool(const std::string& name)>;
// Compresses a layer. Its weight is corrected already for what was done to layers before it, if the
// options say so; what the options do not ask for is empty in the moments. With
// Capture::kSequential what is left in `linear` computes everything behind it.
using Compress = std::function<void(Linear& linear, const LayerMoments& moments)>;

// Calls `compress` for every wanted layer of the blocks that options.state has not got yet. Returns
// the seconds spent outside of it.
double compress_blocks(const DecoderModel& model, const PassOptions& options, const Wanted& wanted,
                       const Compress& compress);

}  // namespace curvq::internal
