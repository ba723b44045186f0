#include <algorithm>
#include <set>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/formats/input_rounding.h"
#include "curvq/io/compressed_tensors.h"
#include "io/module_pattern.h"

namespace curvq {
namespace {

constexpr const char* kMethod = "compressed-tensors";
constexpr const char* kVersion = "0.20.1";

// Null where inputs stay as they are.
OrderedJson inputs_json(InputFormat inputs) {
  if (inputs == InputFormat::kNone) return nullptr;
  const int64_t group = input_group(inputs);
  const bool stored = has_input_scale(inputs), nvfp4 = inputs == InputFormat::kNvfp4;
  OrderedJson json;
  json["num_bits"] = group > 0 ? 4 : 8;
  json["type"] = inputs == InputFormat::kInt8 ? "int" : "float";
  json["strategy"] = nvfp4 ? "tensor_group" : group > 0 ? "group" : stored ? "tensor" : "token";
  if (group > 0) json["group_size"] = group;
  json["symmetric"] = true;
  json["dynamic"] = !stored;
  if (nvfp4) json["dynamic"] = "local";
  if (group > 0) json["scale_dtype"] = nvfp4 ? "torch.float8_e4m3fn" : "torch.uint8";
  if (stored) json["observer"] = "static_minmax";
  return json;
}

OrderedJson weights_json(const Scheme& scheme) {
  OrderedJson json;
  json["num_bits"] = scheme.bits;
  json["type"] = scheme.element == ElementType::kInt ? "int" : "float";
  if (scheme.group_size == 0) {
    json["strategy"] = "channel";
  } else {
    json["strategy"] = scheme.scale_type == ScaleType::kE4M3 ? "tensor_group" : "group";
    json["group_size"] = scheme.group_size;
  }
  json["symmetric"] = scheme.symmetric;
  json["dynamic"] = false;
  if (scheme.scale_type == ScaleType::kE4M3) json["scale_dtype"] = "torch.float8_e4m3fn";
  if (scheme.scale_type == ScaleType::kE8M0) json["scale_dtype"] = "torch.uint8";
  return json;
}

}  // namespace

std::string compressed_tensors_format(const Scheme& scheme) {
  scheme.validate();
  switch (scheme.element) {
    case ElementType::kE2M1:
      return scheme.scale_type == ScaleType::kE4M3 ? "nvfp4-pack-quantized"
                                                   : "mxfp4-pack-quantized";
    case ElementType::kInt:
      return scheme.inputs == InputFormat::kInt8 ? "int-quantized" : "pack-quantized";
    case ElementType::kE4M3:
      break;
  }
  if (scheme.group_size != 0) {
    throw UnsupportedError(
        format("compressed-tensors has no layout for fp8 with groups of %lld; use a "
               "scale a row (group_size 0)",
               static_cast<long long>(scheme.group_size)));
  }
  return "float-quantized";
}

OrderedJson to_json(const QuantizationConfig& config) {
  std::set<std::string> formats;
  OrderedJson groups = OrderedJson::object();
  for (size_t i = 0; i < config.groups.size(); ++i) {
    const QuantizationGroup& group = config.groups[i];
    const std::string layout = compressed_tensors_format(group.scheme);
    formats.insert(layout);
    groups[format("group_%zu", i)] =
        OrderedJson{{"targets", group.targets},
                    {"format", layout},
                    {"input_activations", inputs_json(group.scheme.inputs)},
                    {"output_activations", nullptr},
                    {"weights", weights_json(group.scheme)}};
  }
  if (formats.empty()) throw std::logic_error("a quantization config has no groups");
  OrderedJson json;
  json["quant_method"] = kMethod;
  json["version"] = kVersion;
  json["format"] = formats.size() == 1 ? *formats.begin() : "mixed-precision";
  json["quantization_status"] = "compressed";
  json["global_compression_ratio"] = nullptr;
  json["ignore"] = config.ignore;
  json["kv_cache_scheme"] = nullptr;
  json["sparsity_config"] = OrderedJson::object();
  json["transform_config"] = OrderedJson::object();
  json["moe_sparsity_config"] = nullptr;
  json["config_groups"] = std::move(groups);
  return json;
}

std::optional<Scheme> QuantizationConfig::scheme_of(const std::string& name) const {
  for (const std::string& entry : ignore) {
    if (io::match_module(entry, name) != io::ModuleMatch::kNone) return std::nullopt;
  }
  io::ModuleMatch best = io::ModuleMatch::kNone;
  std::optional<Scheme> scheme;
  for (const QuantizationGroup& group : groups) {
    for (const std::string& target : group.targets) {
      const io::ModuleMatch match = io::match_module(target, name);
      if (match <= best) continue;
      best = match;
      scheme = group.scheme;
    }
  }
  return scheme;
}

}  // namespace curvq
