// Quantizing: one layer, a file of layers, a whole model directory.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "curvq/compress/capture.h"
#include "curvq/compress/gptq.h"
#include "curvq/compress/layer_plan.h"
#include "curvq/compress/prune.h"
#include "curvq/compress/refine.h"
#include "curvq/compress/run_state.h"
#include "curvq/io/token_windows.h"

namespace curvq {

enum class Method { kRtn, kGptq };

// One linear layer's rounding problem.
struct LayerProblem {
  std::string name;
  const float* weight = nullptr;  // [rows, cols], row-major, finite
  int64_t rows = 0, cols = 0;
  const float* hessian = nullptr;  // [cols, cols], 2/N sum x x^T; null: unknown (RTN only)
  // [num_inputs, cols] that `hessian` is the sum of, for QuantizeOptions::inverse_of_inputs; or
  // null
  const float* inputs = nullptr;
  int64_t num_inputs = 0;
  const float* output_factor = nullptr;  // [rows, rows] for the sweeps, see refine(); or null
  double factor_shrinkage = 0;           // how far output_factor is drawn to the identity, 0 to 1
  // The same of tokens that rounding does not see; without both nothing is judged by them.
  const float* held_out_hessian = nullptr;
  const float* held_out_factor = nullptr;
  float tensor_amax = 0;  // see make_scale_grid
  Scheme scheme;
};

// tr(G D H D^T) / tr(G W H W^T) by held-out factors: of round to nearest, of GPTQ before sweeps,
// and of what was kept.
struct HeldOutErrors {
  double rtn = 0, gptq = 0, kept = 0;
};

// The objective tr(G D H D^T) / tr(G W H W^T) behind one step of a layer's rounding, by the H (and
// G; without it, the identity) that rounding saw, and by those of held-out tokens.
struct RoundingStep {
  std::string name;  // "rtn", "gptq", "sweep 1", ...
  double calibration = 0;
  std::optional<double> held_out;
};

// What became of a layer.
struct LayerResult {
  std::string name;
  std::string scheme;  // Scheme::describe(), "" if kept
  int64_t rows = 0, cols = 0;
  double bits_per_weight = 0;
  // tr((W - Q) H (W - Q)^T) / tr(W H W^T) in float64 with the undamped H; without one, or where the
  // denominator is zero, with H = I. For this method and for round to nearest on the same grid.
  double relative_error = 0, rtn_relative_error = 0;
  // With QuantizeOptions::prune: the share of weights that went, and the error before rounding.
  double sparsity = 0, pruned_relative_error = 0;
  double damping = 0;
  // tr((W - Q) (H + damping) (W - Q)^T) / tr(W H W^T) before sweeps, and the most that the nearest
  // plane can leave of it where no value is clipped; NaN without GPTQ.
  double plane_error = std::numeric_limits<double>::quiet_NaN();
  double plane_bound = std::numeric_limits<double>::quiet_NaN();
  int64_t dead_inputs = 0;
  std::optional<int64_t> tokens;    // of the calibration data that came to this expert's layer
  bool rounded_to_nearest = false;  // although another method was asked for
  std::optional<HeldOutErrors> held_out;
  std::vector<RoundingStep> steps;  // in the order in which they were taken
  std::optional<double> shrinkage;  // of G towards the identity, 0 to 1, in the sweeps that stay
  double seconds = 0;
  std::string note;  // anything a user should know; empty if all went as asked
};

struct QuantizeOptions : CaptureOptions {
  std::string out;
  bool overwrite = false;
  bool dry_run = false;       // plan and check only; nothing is written
  bool predict_time = false;  // with dry_run: try pieces of the run, for QuantizeReport
  Method method = Method::kGptq;
  // Sweeps that lower tr(G D H D^T) instead of tr(D H D^T), G = E[g g^T] of the gradients that
  // token_weights tells of, drawn towards the identity where they are few. Costs Gram matrices,
  // products with G, and a temporary file of G for every layer beside the output.
  bool output_factor = false;
  // The share of the calibration windows, the last ones, that rounding does not see. By their H and
  // G each layer's sweeps are judged: where they do worse than GPTQ, G is drawn further towards the
  // identity, then dropped, then the sweeps are; where round to nearest is best, it is kept. Needs
  // output_factor.
  double held_out = 0;
  GptqOptions gptq;
  // The inverse Hessian by one Sherman-Morrison update a calibration input, instead of by Cholesky
  // factorisation: the same but for rounding, slower. For layers whose inputs are at hand
  // (quantize_tensors with NAME.inputs).
  bool inverse_of_inputs = false;
  RefineOptions refine{.sweeps = 0};  // after GPTQ
  // Prunes each layer before it is rounded; what goes stays zero, and rounding makes up for the
  // error of both. The masks are written too (mask_file.h).
  std::optional<PruneOptions> prune;
  PlanOptions plan;
  int64_t max_shard_bytes = int64_t{5} << 30;
  int64_t max_memory_bytes = 0;  // 0: no limit
  StateOptions state;            // for quantize_model()

  bool uses_hessians() const;
  // How many of so many calibration windows `held_out` keeps out: at least one, and not all.
  int64_t held_out_windows(int64_t windows) const;
  void validate() const;
};

// Rounds one layer by options.method. Throws NumericalError as gptq() and make_scale_grid() do.
// With options.prune, `mask` takes what prune() kept, [rows, cols].
QuantizedMatrix quantize_layer(const LayerProblem& problem, const QuantizeOptions& options,
                               LayerResult& result, std::vector<uint8_t>* mask = nullptr);

struct RunTime {
  double seconds = 0, cpu_seconds = 0;  // the latter over all threads
};

struct QuantizeReport {
  std::vector<LayerResult> layers;                     // in the order of the model
  std::vector<PlannedLayer> kept;                      // layers left as they are, with the reason
  int64_t original_bytes = 0, stored_bytes = 0;        // all tensors
  int64_t quantized_weights = 0, quantized_bytes = 0;  // of the quantized layers
  int64_t predicted_peak_bytes = 0;                    // of tensors in memory, without libraries
  // With QuantizeOptions::predict_time: what the run would take on this machine as it is now, an
  // estimate from a block and small layers that were tried.
  std::optional<RunTime> predicted_time;
  int64_t calibration_tokens = 0;
  double capture_seconds = 0, solve_seconds = 0, total_seconds = 0;
};

// Warns with the number of layers that were rounded to nearest although another method was asked
// for.
void warn_of_rounding_to_nearest(const std::vector<LayerResult>& layers);

// Receives the report before the output directory is moved into place; what it returns is written
// to quantization_report.json there.
using ReportWriter = std::function<std::string(const QuantizeReport&)>;

// Quantizes the linear layers of a model directory's decoder blocks and writes a directory in the
// compressed-tensors layout: block after block, so that the float weights of one block and the
// calibration tokens' activations are all that is in memory. `calibration` may be null for kRtn.
// Everything that can be checked beforehand is, before the first block.
//   stats  instead of calibration: a statistics file (see quantize_tensors) whose Hessians are
//          taken, those of the original model's activations, so that options.capture must be
//          kFloat. Throws FormatError if it is one of curvq and belongs to another model.
QuantizeReport quantize_model(const std::string& model, const TokenWindows* calibration,
                              const QuantizeOptions& options, const ReportWriter& write_report,
                              const std::string& stats = "");

// Quantizes a bare .safetensors whose 2-D tensors NAME.weight are linear layers; other tensors are
// copied. `stats` (may be empty for kRtn) gives NAME.hessian [in, in], NAME.inputs [n, in] or
// NAME.A (mean a a^T, a bias last); one of curvq must belong to this file. Writes one .safetensors:
// options.out itself if it ends in .safetensors, else model.safetensors in that directory.
// `file` may also be a model directory, of whatever family: its layers are then the 2-D tensors in
// numbered blocks but routers, and the output is a directory like that of quantize_model().
QuantizeReport quantize_tensors(const std::string& file, const std::string& stats,
                                const QuantizeOptions& options, const ReportWriter& write_report);

}  // namespace curvq
