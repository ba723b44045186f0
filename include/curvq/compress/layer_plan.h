// Which linear layer gets which scheme, decided and checked before any work is done.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "curvq/formats/scheme.h"

namespace curvq {

// What to do with a layer whose inputs the group size does not divide.
enum class OnIndivisible {
  kError,    // stop, naming the group sizes that divide
  kKeep,     // leave its weight as it is
  kChannel,  // one scale for a whole row (integer and FP8 schemes only)
};

// 'PATTERN = scheme key=value ...'; the last rule that matches a layer decides.
struct SchemeRule {
  std::string pattern;
  std::optional<Scheme> scheme;  // nullopt: keep ("PATTERN = keep")

  // Keys: group-size, symmetric (true|false), scale-rule, mx-rule. Throws UsageError naming the
  // rule.
  static SchemeRule parse(const std::string& text, const Scheme& defaults);
};

// What stands behind the ' = ' of a rule: "int4 group-size=64", "keep".
std::string rule_text(const std::optional<Scheme>& scheme);
// The inverse, with nothing taken from defaults.
std::optional<Scheme> parse_rule_text(const std::string& text);

// A linear layer as the planner sees it.
struct LayerShape {
  std::string name;  // without ".weight"
  int64_t rows = 0, cols = 0;
  DType dtype = DType::kF32;          // of the plain weight, or what it is computed in
  std::optional<Scheme> stored = {};  // where the model comes packed, as gpt_oss' experts in MXFP4
};

// The scheme with the float scales that the layer's dtype (F64: F32) calls for, and its arithmetic.
Scheme scheme_of_layer(Scheme scheme, const LayerShape& layer);

struct PlannedLayer : LayerShape {
  std::optional<Scheme> scheme;  // nullopt: kept as it is
  std::string reason;            // why it is kept
};

// A scheme, or nullopt to keep it, for each layer by name, as a plan file gives it.
struct SchemeAssignment {
  std::string file;  // for messages
  std::map<std::string, std::optional<Scheme>> schemes;
};

struct PlanOptions {
  Scheme scheme;
  std::optional<SchemeAssignment> assignment;  // instead of `scheme`; has an entry for every layer
  std::vector<std::string> ignore;             // patterns of layers to keep
  std::vector<SchemeRule> rules;
  OnIndivisible on_indivisible = OnIndivisible::kError;
};

// Throws UsageError, naming layers that exist, unless the pattern of `option` matches one.
void require_match(const std::string& option, const std::string& pattern,
                   const std::vector<LayerShape>& layers);

// Schemes are those of scheme_of_layer(). Layers that are stored packed are kept as they are unless
// a rule or the assignment names them. Throws UsageError for a pattern that matches no layer
// (with names that exist), a group that does not divide under kError, and if nothing at all would
// be quantized; FormatError, naming the entry, for an assignment with a layer too many or too few.
std::vector<PlannedLayer> plan_layers(const std::vector<LayerShape>& layers,
                                      const PlanOptions& options);

}  // namespace curvq
