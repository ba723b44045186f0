#include "curvq/compress/layer_plan.h"

#include <algorithm>
#include <sstream>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/pattern.h"

namespace curvq {
namespace {

std::string dividing_groups(int64_t cols) {
  std::string out;
  for (int64_t group : {16, 32, 64, 128, 256}) {
    if (cols % group == 0) out += (out.empty() ? "" : ", ") + std::to_string(group);
  }
  return out.empty() ? "none of 16, 32, 64, 128 divides" : out + " would divide";
}

void check_assignment(const SchemeAssignment& assignment, const std::vector<LayerShape>& layers) {
  const auto& schemes = assignment.schemes;
  for (const LayerShape& layer : layers) {
    if (schemes.count(layer.name) > 0) continue;
    throw FormatError(assignment.file + ": there is no entry for " + layer.name +
                      "; every linear layer needs one, \"keep\" leaves it as it is");
  }
  for (const auto& [name, scheme] : schemes) {
    if (std::any_of(layers.begin(), layers.end(),
                    [&](const LayerShape& layer) { return layer.name == name; }))
      continue;
    throw FormatError(assignment.file + ": the entry " + name + " names none of the model's " +
                      std::to_string(layers.size()) + " linear layers; the first is " +
                      layers.front().name + ", the last " + layers.back().name);
  }
}

}  // namespace

SchemeRule SchemeRule::parse(const std::string& text, const Scheme& defaults) {
  const auto fail = [&](const std::string& why) -> UsageError {
    return UsageError("rule '" + text + "': " + why +
                      "; a rule reads 'PATTERN = scheme key=value', keys are group-size, "
                      "symmetric, scale-rule, mx-rule, input-format");
  };
  const size_t equals = text.find(" = ");
  if (equals == std::string::npos) throw fail("there is no ' = '");
  SchemeRule rule;
  const auto trim = [](std::string s) {
    s.erase(0, s.find_first_not_of(" \t"));
    s.erase(s.find_last_not_of(" \t") + 1);
    return s;
  };
  rule.pattern = trim(text.substr(0, equals));
  if (rule.pattern.empty()) throw fail("the pattern is empty");
  std::istringstream words(text.substr(equals + 3));
  std::string name, word;
  if (!(words >> name)) throw fail("the scheme is missing");
  if (name == "keep") {
    if (words >> word) throw fail("keep takes no key");
    return rule;
  }
  Scheme scheme = Scheme::parse(name);
  scheme.rule = defaults.rule;
  scheme.mx_rule = defaults.mx_rule;
  while (words >> word) {
    const size_t at = word.find('=');
    if (at == std::string::npos) throw fail("'" + word + "' is not key=value");
    const std::string key = word.substr(0, at), value = word.substr(at + 1);
    if (key == "group-size") {
      size_t used = 0;
      try {
        scheme.group_size = std::stoll(value, &used);
      } catch (const std::exception&) {
      }
      if (used != value.size() || value.empty())
        throw fail("group-size '" + value + "' is not a number");
    } else if (key == "symmetric") {
      if (value != "true" && value != "false")
        throw fail("symmetric is true or false, not '" + value + "'");
      scheme.symmetric = value == "true";
    } else if (key == "scale-rule") {
      scheme.rule = parse_scale_rule(value);
    } else if (key == "mx-rule") {
      scheme.mx_rule = parse_mx_rule(value);
    } else if (key == "input-format") {
      scheme.inputs = parse_input_format(value);
    } else {
      throw fail("there is no key '" + key + "'");
    }
  }
  scheme.validate();
  rule.scheme = scheme;
  return rule;
}

Scheme scheme_of_layer(Scheme scheme, const LayerShape& layer) {
  const bool half = layer.dtype == DType::kF16 || layer.dtype == DType::kBF16;
  scheme.scale_dtype = scheme.source_dtype = half ? layer.dtype : DType::kF32;
  return scheme;
}

std::string rule_text(const std::optional<Scheme>& scheme) {
  if (!scheme) return "keep";
  std::string text = scheme->name();
  if (scheme->scale_type == ScaleType::kFloat)
    text += format(" group-size=%lld", static_cast<long long>(scheme->group_size));
  if (!scheme->symmetric) text += " symmetric=false";
  if (scheme->rule != ScaleRule::kCurvq)
    text.append(" scale-rule=").append(scale_rule_name(scheme->rule));
  if (scheme->scale_type == ScaleType::kE8M0 && scheme->mx_rule != MxRule::kEven)
    text.append(" mx-rule=").append(mx_rule_name(scheme->mx_rule));
  if (scheme->inputs != InputFormat::kNone)
    text.append(" input-format=").append(input_format_name(scheme->inputs));
  return text;
}

std::optional<Scheme> parse_rule_text(const std::string& text) {
  return SchemeRule::parse("* = " + text, Scheme()).scheme;
}

void require_match(const std::string& option, const std::string& pattern,
                   const std::vector<LayerShape>& layers) {
  for (const LayerShape& layer : layers) {
    if (pattern_matches(pattern, layer.name)) return;
  }
  throw UsageError(option + " '" + pattern + "' matches none of the " +
                   std::to_string(layers.size()) + " linear layers; the first is " +
                   layers.front().name + ", the last " + layers.back().name);
}

std::vector<PlannedLayer> plan_layers(const std::vector<LayerShape>& layers,
                                      const PlanOptions& options) {
  if (layers.empty()) throw UsageError("the model has no linear layer to quantize");
  options.scheme.validate();
  if (options.assignment) check_assignment(*options.assignment, layers);
  for (const std::string& pattern : options.ignore) require_match("--ignore", pattern, layers);
  for (const SchemeRule& rule : options.rules) require_match("--rule", rule.pattern, layers);

  std::vector<PlannedLayer> plan;
  int64_t quantized = 0;
  for (const LayerShape& layer : layers) {
    PlannedLayer planned;
    static_cast<LayerShape&>(planned) = layer;
    planned.scheme = options.scheme;
    if (layer.stored) {
      planned.scheme.reset();
      planned.reason = "is " + layer.stored->name() + " already; a --rule rounds it again";
    }
    if (options.assignment) {
      planned.scheme = options.assignment->schemes.at(layer.name);
      if (!planned.scheme) planned.reason = "kept by the plan";
    }
    for (const SchemeRule& rule : options.rules) {
      if (!pattern_matches(rule.pattern, layer.name)) continue;
      planned.scheme = rule.scheme;
      planned.reason = rule.scheme ? "" : "kept by rule '" + rule.pattern + "'";
    }
    for (const std::string& pattern : options.ignore) {
      if (!pattern_matches(pattern, layer.name)) continue;
      planned.scheme.reset();
      planned.reason = "ignored by '" + pattern + "'";
    }
    if (planned.scheme && !planned.scheme->divides(layer.cols)) {
      const std::string why = format("group size %lld does not divide its %lld inputs",
                                     static_cast<long long>(planned.scheme->group_size),
                                     static_cast<long long>(layer.cols));
      if (options.on_indivisible == OnIndivisible::kKeep) {
        planned.scheme.reset();
        planned.reason = why;
      } else if (options.on_indivisible == OnIndivisible::kChannel &&
                 planned.scheme->scale_type == ScaleType::kFloat) {
        planned.scheme->group_size = 0;
        try {
          planned.scheme->validate();  // of inputs, some formats go with groups only
        } catch (const UsageError& error) {
          throw UsageError(layer.name + ": " + error.what() + "; use --on-indivisible keep");
        }
      } else {
        const bool channel = options.on_indivisible == OnIndivisible::kChannel;
        throw UsageError(layer.name + ": " + why + " (" + dividing_groups(layer.cols) + "); " +
                         (channel ? planned.scheme->name() + " has no whole-row form, "
                          : planned.scheme->scale_type != ScaleType::kFloat
                              ? std::string("choose another --scheme, ")
                              : std::string("choose another --group-size, ")) +
                         "skip it with --ignore, or leave such layers with --on-indivisible keep");
      }
    }
    if (planned.scheme) {
      planned.scheme = scheme_of_layer(*planned.scheme, layer);
      ++quantized;
    }
    plan.push_back(std::move(planned));
  }
  if (quantized == 0) {
    throw UsageError("nothing would be quantized: every linear layer is kept; the first, " +
                     plan.front().name + ": " + plan.front().reason);
  }
  return plan;
}

}  // namespace curvq
