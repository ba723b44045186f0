#include <algorithm>
#include <cctype>
#include <set>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/compressed_tensors.h"
#include "io/module_pattern.h"
#include "io/text.h"

namespace curvq {
namespace {

// Layouts that compressed_tensors_unpack reads, by what their weights are.
const std::set<std::string> kIntFormats = {"pack-quantized", "int-quantized", "naive-quantized"};
const std::set<std::string> kFp8Formats = {"float-quantized", "naive-quantized"};
const std::set<std::string> kNvfp4Formats = {"nvfp4-pack-quantized"};
const std::set<std::string> kMxfp4Formats = {"mxfp4-pack-quantized"};

bool is_absent(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null();
}

[[noreturn]] void unsupported(const Json& object, const char* key, const std::string& origin,
                              const std::string& hint) {
  const std::string value = object.at(key).dump(-1, ' ', false, Json::error_handler_t::replace);
  throw UnsupportedError(origin + ": \"" + key + "\" is " + io::printable(value) + "; " + hint);
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::vector<std::string> string_list(const Json& object, const char* key,
                                     const std::string& origin) {
  if (is_absent(object, key)) return {};
  const Json& list = object.at(key);
  const auto is_string = [](const Json& item) { return item.is_string(); };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_string)) {
    throw FormatError(origin + ": \"" + key + "\" must be a list of strings");
  }
  auto entries = list.get<std::vector<std::string>>();
  for (const std::string& entry : entries) {
    io::check_module_pattern(entry, origin + ": " + key);
  }
  return entries;
}

// What must be absent, null or empty, as curvq does not read it.
void require_unused(const Json& object, const char* key, const std::string& origin,
                    const std::string& hint) {
  if (!is_absent(object, key) && !object.at(key).empty()) unsupported(object, key, origin, hint);
}

void check_sparsity(const Json& json, const std::string& origin) {
  if (is_absent(json, "sparsity_config") || json.at("sparsity_config").empty()) return;
  // Old writers say that there is none.
  const std::string sparsity =
      json_string(json.at("sparsity_config"), "format", "", origin + ": sparsity_config");
  if (sparsity != "dense")
    unsupported(json, "sparsity_config", origin, "sparse layouts are not read");
}

void check_transforms(const Json& json, const std::string& origin) {
  if (is_absent(json, "transform_config")) return;
  const Json& transforms = json.at("transform_config");
  const bool only_empty_groups = transforms.is_object() && transforms.size() == 1 &&
                                 transforms.contains("config_groups") &&
                                 transforms.at("config_groups").empty();
  if (!only_empty_groups) {
    require_unused(json, "transform_config", origin, "transformed weights are not read");
  }
}

// "tensor", "channel", "group", ...; compressed-tensors derives it from the group size if absent.
std::string strategy_of(const Json& weights, int64_t group_size, const std::string& origin) {
  const std::string strategy = lower(json_string(weights, "strategy", "", origin));
  if (!strategy.empty()) return strategy;
  if (group_size > 0) return "group";
  return group_size == -1 ? "channel" : "tensor";
}

// 0 if one scale serves a whole row (or more).
int64_t group_size_of(const Json& weights, const std::string& origin) {
  const int64_t given = json_int(weights, "group_size", 0, origin);
  const std::string strategy = strategy_of(weights, given, origin);
  if (strategy == "group" || strategy == "tensor_group") {
    if (given > 0) return given;
    throw FormatError(format("%s: strategy \"%s\" with group_size %lld; it must be positive",
                             origin.c_str(), strategy.c_str(), static_cast<long long>(given)));
  }
  if (strategy != "channel" && strategy != "tensor") {
    unsupported(weights, "strategy", origin, "curvq reads tensor, channel, group and tensor_group");
  }
  if (given > 0) {
    throw FormatError(format("%s: strategy \"%s\" contradicts group_size %lld", origin.c_str(),
                             strategy.c_str(), static_cast<long long>(given)));
  }
  return 0;
}

void check_unread_settings(const Json& weights, const std::string& origin) {
  if (!is_absent(weights, "dynamic") && weights.at("dynamic") != false) {
    unsupported(weights, "dynamic", origin, "scales of weights must be stored");
  }
  if (!is_absent(weights, "actorder") && weights.at("actorder") != false &&
      weights.at("actorder") != "weight" && weights.at("actorder") != "static") {
    unsupported(weights, "actorder", origin, "columns in another order are not read");
  }
}

Scheme parse_weights(const Json& weights, const std::string& origin) {
  if (!weights.is_object()) throw FormatError(origin + " must be an object");
  check_unread_settings(weights, origin);
  const int64_t bits = json_int(weights, "num_bits", 8, origin);
  const std::string type = lower(json_string(weights, "type", "int", origin));
  const int64_t group_size = group_size_of(weights, origin);
  const bool has_tensor_scale = strategy_of(weights, group_size, origin) == "tensor_group";
  const bool symmetric = json_bool(weights, "symmetric", true, origin);
  if (type == "int" && (bits == 4 || bits == 8) && !has_tensor_scale) {
    return bits == 4 ? Scheme::int4(group_size, symmetric) : Scheme::int8(group_size, symmetric);
  }
  if (type == "float" && symmetric) {
    if (bits == 4 && has_tensor_scale && group_size == 16) return Scheme::nvfp4();
    if (bits == 4 && !has_tensor_scale && group_size == 32) return Scheme::mxfp4();
    if (bits == 8 && group_size == 0) return Scheme::fp8();
  }
  throw UnsupportedError(
      format("%s: %lld-bit %s%s with strategy %s and group size %lld; curvq reads "
             "int of 4 or 8 bits, nvfp4 (tensor_group, 16), mxfp4 (group, 32) and "
             "fp8 (channel, tensor)",
             origin.c_str(), static_cast<long long>(bits), symmetric ? "" : "asymmetric ",
             io::printable(type).c_str(), strategy_of(weights, group_size, origin).c_str(),
             static_cast<long long>(group_size)));
}

// Those of its presets NVFP4, MXFP4, FP8_DYNAMIC and W4AFP8, FP8, and W8A8.
InputFormat parse_inputs(const Json& inputs, const std::string& origin) {
  if (!inputs.is_object()) throw FormatError(origin + " must be an object");
  const int64_t bits = json_int(inputs, "num_bits", 8, origin);
  const int64_t group = json_int(inputs, "group_size", 0, origin);
  const std::string type = lower(json_string(inputs, "type", "int", origin));
  const std::string strategy = strategy_of(inputs, group, origin);
  const bool symmetric = json_bool(inputs, "symmetric", true, origin);
  const Json dynamic = is_absent(inputs, "dynamic") ? Json(false) : inputs.at("dynamic");
  const bool each_token = strategy == "token" && dynamic == true;
  if (symmetric && type == "float") {
    if (bits == 4 && strategy == "tensor_group" && group == 16 && dynamic == "local")
      return InputFormat::kNvfp4;
    if (bits == 4 && strategy == "group" && group == 32 && dynamic == true)
      return InputFormat::kMxfp4;
    if (bits == 8 && each_token) return InputFormat::kFp8;
    if (bits == 8 && strategy == "tensor" && dynamic == false) return InputFormat::kFp8Tensor;
  }
  if (symmetric && type == "int" && bits == 8 && each_token) return InputFormat::kInt8;
  throw UnsupportedError(format(
      "%s: %s%lld-bit %s with strategy %s, group size %lld and dynamic %s; curvq reads nvfp4 "
      "(tensor_group, 16, local), mxfp4 (group, 32, dynamic), fp8 (token, dynamic; tensor, "
      "not dynamic) and int8 (token, dynamic)",
      origin.c_str(), symmetric ? "" : "asymmetric ", static_cast<long long>(bits),
      io::printable(type).c_str(), io::printable(strategy).c_str(), static_cast<long long>(group),
      io::printable(dynamic.dump(-1, ' ', false, Json::error_handler_t::replace)).c_str()));
}

const std::set<std::string>& formats_of(const Scheme& scheme) {
  if (scheme.element == ElementType::kInt) return kIntFormats;
  if (scheme.element == ElementType::kE4M3) return kFp8Formats;
  return scheme.scale_type == ScaleType::kE4M3 ? kNvfp4Formats : kMxfp4Formats;
}

// `layout`: the group's format, or the model's if the group has none.
void check_format(const std::string& layout, const Scheme& scheme, const std::string& origin) {
  if (layout.empty() || formats_of(scheme).count(layout) > 0) return;
  for (const auto* formats : {&kIntFormats, &kFp8Formats, &kNvfp4Formats, &kMxfp4Formats}) {
    if (formats->count(layout) > 0) {
      throw FormatError(origin + ": format \"" + layout + "\" contradicts weights of " +
                        scheme.describe());
    }
  }
  throw UnsupportedError(
      origin + ": \"format\" is \"" + io::printable(layout) +
      "\"; curvq reads nvfp4-pack-quantized, mxfp4-pack-quantized, pack-quantized, "
      "int-quantized, float-quantized and naive-quantized");
}

QuantizationGroup parse_group(const Json& json, const std::string& model_format,
                              const std::string& origin) {
  if (!json.is_object()) throw FormatError(origin + " must be an object");
  require_unused(json, "output_activations", origin, "outputs of layers cannot be quantized");
  QuantizationGroup group;
  group.targets = string_list(json, "targets", origin);
  if (group.targets.empty()) throw FormatError(origin + ": \"targets\" is missing or empty");
  if (is_absent(json, "weights")) throw FormatError(origin + ": \"weights\" is missing");
  group.scheme = parse_weights(json.at("weights"), origin + ".weights");
  if (!is_absent(json, "input_activations")) {
    group.scheme.inputs = parse_inputs(json.at("input_activations"), origin + ".input_activations");
    try {
      group.scheme.validate();
    } catch (const UsageError& error) {
      throw UnsupportedError(origin + ": " + error.what());
    }
  }
  check_format(json_string(json, "format", model_format, origin), group.scheme, origin);
  return group;
}

// Whatever modules_to_not_convert says: nothing but experts has this form.
QuantizationConfig mxfp4_experts() {
  QuantizationConfig config;
  config.groups.push_back({Scheme::mxfp4(), {"re:.*\\.experts\\."}});
  config.original = true;
  return config;
}

}  // namespace

QuantizationConfig parse_quantization_config(const Json& json, const std::string& origin) {
  const std::string method = json_string(json, "quant_method", "", origin);
  if (method.empty()) throw FormatError(origin + ": \"quant_method\" is missing");
  if (method == "mxfp4") return mxfp4_experts();
  if (method != "compressed-tensors") {
    unsupported(json, "quant_method", origin, "curvq reads compressed-tensors and mxfp4");
  }
  require_unused(json, "kv_cache_scheme", origin, "quantized key and value caches are not read");
  check_sparsity(json, origin);
  check_transforms(json, origin);
  std::string model_format = json_string(json, "format", "", origin);
  if (model_format == "mixed-precision") model_format.clear();  // each group has its own

  QuantizationConfig config;
  config.ignore = string_list(json, "ignore", origin);
  const auto groups = json.find("config_groups");
  if (groups == json.end() || !groups->is_object() || groups->empty()) {
    throw FormatError(origin + ": \"config_groups\" must be an object that is not empty");
  }
  for (const auto& [name, group] : groups->items()) {
    config.groups.push_back(parse_group(group, model_format, origin + ": " + io::printable(name)));
  }
  return config;
}

}  // namespace curvq
