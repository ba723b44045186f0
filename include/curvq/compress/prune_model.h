// Pruning a whole model directory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "curvq/compress/capture.h"
#include "curvq/compress/layer_plan.h"
#include "curvq/compress/prune.h"
#include "curvq/compress/run_state.h"
#include "curvq/io/token_windows.h"

namespace curvq {

// kUniform: the same sparsity in each layer. kGlobal: what one threshold on saliencies over all
// layers gives, unstructured only, at most 95 % of a layer. The saliency of kMagnitude is w^2, that
// of other methods w^2 times the diagonal of the loss's Hessian: the `stats` of kObd, or the
// product of the Fisher factors' diagonals, for which the calibration tokens go through the model
// forward and back.
enum class Allocation { kUniform, kGlobal };

struct PruneModelOptions : CaptureOptions {
  std::string out;
  bool overwrite = false;
  bool dry_run = false;  // plan and check only; nothing is written
  PruneOptions prune;
  Allocation allocation = Allocation::kUniform;
  std::vector<std::string> ignore;  // patterns of layers to keep
  // A .safetensors with tensors of every layer. For PruneMethod::kObd NAME.diagonal [out, in], of
  // the loss's Hessian (empty: the diagonal of the layer's own H); for kWoodFisher NAME.gradients
  // [samples, out, in].
  std::string stats;
  int64_t max_shard_bytes = int64_t{5} << 30;
  int64_t max_memory_bytes = 0;  // 0: no limit
  StateOptions state;

  bool uses_hessians() const;
  // Throws UsageError naming field, value and bound.
  void validate() const;
};

// What became of a layer.
struct PrunedLayer {
  std::string name;
  std::string pattern;  // SparsityPattern::describe()
  int64_t rows = 0, cols = 0;
  double sparsity = 0;  // share of weights that the mask takes out
  // tr((W - Q) H (W - Q)^T) / tr(W H W^T) in float64 with the undamped H, weights as stored;
  // without an H, or where the denominator is zero, with H = I. For this method and for the same
  // pattern by magnitude without an update.
  double relative_error = 0, magnitude_relative_error = 0;
  double damping = 0;
  int64_t dead_inputs = 0;
  double seconds = 0;
  std::string note;  // anything a user should know; empty if all went as asked
};

// prune() with what a report wants to know, a warning for what a user should know, and the kept
// weights rounded to `dtype`, in which they will be stored.
PrunedMatrix prune_layer(const PruneProblem& problem, const PruneOptions& options, DType dtype,
                         PrunedLayer& result);

struct PruneReport {
  std::vector<PrunedLayer> layers;  // in the order of the model
  std::vector<PlannedLayer> kept;   // layers left as they are, with the reason
  int64_t original_bytes = 0, stored_bytes = 0, mask_bytes = 0;
  int64_t weights = 0, zero_weights = 0;  // of the pruned layers; zero by their masks
  int64_t predicted_peak_bytes = 0;       // of tensors in memory, without libraries
  int64_t calibration_tokens = 0;
  double capture_seconds = 0, solve_seconds = 0, total_seconds = 0;
};

// Receives the report before the output directory is moved into place; what it returns is written
// to pruning_report.json there.
using PruneReportWriter = std::function<std::string(const PruneReport&)>;

// Prunes the linear layers of a model directory's decoder blocks, block after block as
// quantize_model() does, and writes a directory of the same tensors in the same dtypes, with zeros,
// and the masks (see mask_file.h). `calibration` may be null where no Hessian is used. Everything
// that can be checked beforehand is, before the first block.
PruneReport prune_model(const std::string& model, const TokenWindows* calibration,
                        const PruneModelOptions& options, const PruneReportWriter& write_report);

}  // namespace curvq
