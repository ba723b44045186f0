// Bit plans: which layer gets which format, so that the model loses least within so many bytes.
//
// Storing a layer in a format changes its weight by D, a rounding error that is measured by
// rounding the layer. The model's outputs then move by KL(model || rounded), which is, by its
// Hessian in Kronecker factors A = E[x x^T] and G = E[g g^T] (Martens and Grosse 2015), about tr(G
// D A D^T) / 2 nats a token for each layer, and about the sum over layers.
//
// The plan file is JSON:
//   schema_version 1
//   kind           "curvq plan"
//   model_hash     Checkpoint::content_hash() of the model; may be left out
//   layers         {NAME: {"scheme": S, ...}}, an entry for every linear layer of the decoder
//                  blocks; S reads as behind the ' = ' of a rule (SchemeRule), "keep" for as it is
// What else `layers` and the file hold (bytes, bits, predicted_kl) is for people, and not read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "curvq/compress/quantize.h"
#include "curvq/io/json.h"

namespace curvq {

// A layer in one format.
struct FormatCost {
  std::optional<Scheme> scheme;  // nullopt: as it is, at no loss
  int64_t bytes = 0;             // Scheme::stored_bytes(): codes and scales
  int64_t tensor_bytes = 0;      // of its tensors in a checkpoint, those that name shapes included
  double relative_error = 0;     // LayerResult::relative_error of its rounding
  // Nats a token that the model's output moves by,
  double kronecker = 0;  // tr(G D A D^T) / 2
  double trace = 0;      // the same if all outputs mattered alike: tr(G) / R tr(D A D^T) / 2
  double hawq = 0;  // and all inputs: tr(G) tr(A) / (R K) |D|^2 / 2 (HAWQ-V2, Dong et al. 2020)
};

// A layer in every format that it can have. Loaders want layers of one `fused` key alike.
struct LayerCosts : LayerShape {
  std::string fused;
  std::vector<FormatCost> choices;

  // nullptr if the layer cannot have it; dtypes of scales do not matter.
  const FormatCost* find(const std::optional<Scheme>& scheme) const;
};

struct CostOptions {
  // How layers are rounded; capture is taken for kFloat, and plan.on_indivisible other than kKeep
  // means that a layer just lacks the formats whose groups do not divide it.
  QuantizeOptions rounding;
  // The formats, nullopt among them to let layers be kept.
  std::vector<std::optional<Scheme>> formats;
  // Of the calibration windows, the last ones, that rounding does not see and A and G are of.
  double held_out = 0.2;
  int64_t label_draws = 4;  // for G
  std::string scratch;      // a directory, for the factors of all layers
  bool dry_run = false;     // check everything, and leave all losses 0

  void validate() const;  // throws UsageError naming field, value and bound
};

struct CostReport {
  std::vector<LayerCosts> layers;  // in the model's order
  std::vector<PlannedLayer> kept;  // layers that are not planned, with the reason
  int64_t other_bytes = 0;         // of all tensors that are not weights of `layers`
  int64_t factor_tokens = 0;       // label draws included, that A and G are the means of
  double seconds = 0;
};

// Rounds every layer of a model directory to every format, each by itself behind original layers.
// `calibration` or `stats`, a file with A and G of every layer (layer_curvature.h), as for
// quantize_model(). With statistics rounding and prediction use the same factors. Block after
// block is in memory. Throws as quantize_model() and kfac_factors() do.
CostReport measure_costs(const std::string& model, const TokenWindows* calibration,
                         const CostOptions& options, const std::string& stats = "");

enum class PlanRule { kKronecker, kTrace, kHawq };
double predicted(const FormatCost& cost, PlanRule rule);

struct BitPlan {
  std::vector<FormatCost> layers;                    // as in CostReport::layers
  int64_t bytes = 0, tensor_bytes = 0, weights = 0;  // of these layers
  double predicted = 0;   // by the rule of solve_plan(), kronecker for others
  double relaxation = 0;  // no plan of these bytes predicts less, even if layers could mix formats

  double bits() const { return 8.0 * static_cast<double>(bytes) / static_cast<double>(weights); }
};

// The plan of least predicted loss within `bytes`, fused layers alike; exact and deterministic, see
// solve_knapsack(). Throws UsageError naming the least bytes that are possible.
BitPlan solve_plan(const std::vector<LayerCosts>& layers, int64_t bytes, PlanRule rule);

// The bytes that `bits` a weight come to, NVFP4 with its tensor scale counting as 4.5.
int64_t budget_of_bits(const std::vector<LayerCosts>& layers, double bits);
// The bytes with which the layers' tensors take at most `tensor_bytes`, whatever their formats.
int64_t budget_of_tensors(const std::vector<LayerCosts>& layers, int64_t tensor_bytes);

// Every layer that can have it in one format; the others as in `like`. nullopt if none can.
std::optional<BitPlan> uniform_plan(const std::vector<LayerCosts>& layers,
                                    const std::optional<Scheme>& format, const BitPlan& like);

// The plan file. `kept`: layers outside of the plan.
OrderedJson plan_json(const std::vector<LayerCosts>& layers, const std::vector<PlannedLayer>& kept,
                      const BitPlan& plan, const std::string& model_hash);

// Throws FormatError naming file and entry for what is no plan, and, unless it is empty, for
// another `model_hash` than the file's; for fused layers that differ.
SchemeAssignment read_plan(const std::string& path, const std::string& model_hash);

}  // namespace curvq
