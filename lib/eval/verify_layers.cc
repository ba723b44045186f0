// Tensors that there must be, by config.json, against those that are there.
#include <algorithm>
#include <cstring>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/eval/stored_tensors.h"
#include "curvq/nn/bare_names.h"
#include "eval/verify_context.h"

namespace curvq::verify {
namespace {

const TensorView* input_scale_of(const Context& context, const std::string& layer) {
  const TensorView* divisor = context.find(layer + ".input_global_scale");
  return divisor != nullptr ? divisor : context.find(layer + ".input_scale");
}

constexpr const char* kConfig = "config.json";
constexpr const char* kParts[] = {".weight_packed", ".weight_scale",      ".weight_global_scale",
                                  ".weight_shape",  ".weight_zero_point", ".input_global_scale",
                                  ".input_scale"};

bool is_plain_weight(const TensorView* tensor) {
  return tensor && is_floating_point(tensor->dtype);
}

// The parts of a layer. Where an integer layer has no packed weight, its codes may be stored as
// they are (int-quantized, naive-quantized).
std::vector<TensorInfo> wanted_parts(const Context& context, const std::string& name,
                                     const Scheme& scheme, int64_t rows, int64_t cols) {
  std::vector<TensorInfo> parts = compressed_tensors_infos(name, scheme, rows, cols);
  const TensorView* codes = context.find(name + ".weight");
  if (scheme.element != ElementType::kInt || !codes || codes->dtype != DType::kI8) return parts;
  std::erase_if(parts, [](const TensorInfo& part) {
    return part.name.ends_with(".weight_packed") || part.name.ends_with(".weight_shape");
  });
  for (TensorInfo& part : parts) {
    if (part.name.ends_with(".weight_zero_point")) {
      part.dtype = DType::kI8;
      part.shape = {rows, scheme.num_groups(cols)};
    }
  }
  const std::string weight = name + ".weight";
  if (std::none_of(parts.begin(), parts.end(),
                   [&](const TensorInfo& part) { return part.name == weight; }))
    parts.push_back({weight, DType::kI8, {rows, cols}});
  return parts;
}

// Besides the layout's own form, those in which other writers store the same.
bool part_fits(const TensorInfo& wanted, const Scheme& scheme, const TensorView& tensor) {
  const bool float_scale =
      scheme.scale_type == ScaleType::kFloat && wanted.name.ends_with(".weight_scale");
  const DType dtype = tensor.dtype;
  const int64_t count = tensor.num_elements();
  const bool is_float = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
  if (wanted.name.ends_with(".input_scale")) return is_float && count == 1;
  if (float_scale) {
    const bool is_flat = scheme.group_size == 0 && (count == 1 || count == wanted.shape[0]);
    return is_float && (tensor.shape == wanted.shape || is_flat);
  }
  return tensor.dtype == wanted.dtype && tensor.shape == wanted.shape;
}

// weight_shape of pack-quantized says what the packed words hold.
bool check_weight_shape(Context* context, const TensorView& tensor, int64_t rows, int64_t cols) {
  std::vector<int64_t> stored(2);
  std::memcpy(stored.data(), tensor.data, sizeof(int64_t) * 2);
  if (stored[0] == rows && stored[1] == cols) return true;
  context->tensor_error(
      tensor, "says " + shape_string(stored) + ", the layer is " + shape_string({rows, cols}));
  return false;
}

std::string form(const TensorInfo& tensor) {
  return std::string(dtype_name(tensor.dtype)) + " " + shape_string(tensor.shape);
}

// True if all parts are there and fit.
bool check_parts(Context* context, const std::string& name, const Scheme& scheme, int64_t rows,
                 int64_t cols) {
  bool fits = true;
  for (const TensorInfo& wanted : wanted_parts(*context, name, scheme, rows, cols)) {
    context->accounted.insert(wanted.name);
    const TensorView* tensor = context->find(wanted.name);
    if (!tensor) {
      fits = false;
      if (!context->complete) continue;  // it may be in a shard that is lost
      context->error(kConfig, wanted.name,
                     "missing; " + scheme.describe() + " wants " + form(wanted));
    } else if (!part_fits(wanted, scheme, *tensor)) {
      fits = false;
      context->tensor_error(*tensor, form(*tensor) + "; " + scheme.describe() + " of a layer " +
                                         shape_string({rows, cols}) + " wants " + form(wanted));
    } else if (wanted.name.ends_with(".weight_shape")) {
      fits = check_weight_shape(context, *tensor, rows, cols) && fits;
    }
  }
  const TensorView* zero_point = context->find(name + ".weight_zero_point");
  if (scheme.symmetric && zero_point) {
    fits = false;
    context->accounted.insert(zero_point->name);
    context->tensor_error(*zero_point, "stored, but " + scheme.describe() +
                                           " of quantization_config has no zero points");
  }
  return fits;
}

void check_quantized_layer(Context* context, const std::string& name, const Scheme& scheme,
                           int64_t rows, int64_t cols) {
  const TensorView* plain = context->find(name + ".weight");
  if (is_plain_weight(plain)) {
    context->accounted.insert(plain->name);
    context->tensor_error(*plain, "stored plain as " + std::string(dtype_name(plain->dtype)) +
                                      ", but quantization_config makes it " + scheme.describe() +
                                      "; it belongs into ignore");
  } else if (!scheme.divides(cols)) {
    context->error(kConfig, name,
                   format("group_size %lld of quantization_config does not divide in_features %lld",
                          static_cast<long long>(scheme.group_size), static_cast<long long>(cols)));
    for (const char* part : kParts) context->accounted.insert(name + part);
  } else if (check_parts(context, name, scheme, rows, cols)) {
    context->layers.push_back({name, scheme, rows, cols});
  }
}

void check_plain_tensor(Context* context, const TensorInfo& wanted) {
  context->accounted.insert(wanted.name);
  const TensorView* tensor = context->find(wanted.name);
  const std::string layer = wanted.name.substr(0, wanted.name.rfind('.'));
  const bool packed =
      wanted.name.ends_with(".weight") && context->find(layer + ".weight_packed") != nullptr;
  const bool coded = tensor && (tensor->dtype == DType::kF8E4M3 || tensor->dtype == DType::kI8);
  if (packed || coded) {
    for (const char* part : kParts) context->accounted.insert(layer + part);
    context->tensor_error(
        coded ? *tensor : *context->find(layer + ".weight_packed"),
        context->quantization
            ? "stored quantized, but quantization_config of config.json leaves this layer plain"
            : "stored quantized, but config.json has no quantization_config");
    return;
  }
  if (!tensor) {
    if (!context->complete) return;  // it may be in the shard that is lost
    context->error(kConfig, wanted.name,
                   "missing; config.json wants " + shape_string(wanted.shape));
  } else if (tensor->shape != wanted.shape) {
    context->tensor_error(*tensor, "shape " + shape_string(tensor->shape) + ", config.json wants " +
                                       shape_string(wanted.shape));
  } else if (!is_floating_point(tensor->dtype)) {
    context->tensor_error(*tensor, "dtype " + std::string(dtype_name(tensor->dtype)) +
                                       " where a plain weight is expected");
  }
}

// lm_head.weight beside tied embeddings is harmless only if it is a copy.
void check_tied_head(Context* context) {
  if (!context->decoder->tied_embeddings) return;
  const DecoderNames& names = context->decoder->names;
  if (context->quantization && context->quantization->scheme_of(names.head)) {
    context->error(kConfig, names.head,
                   "quantized by quantization_config, but tie_word_embeddings is true; it belongs "
                   "into ignore");
  }
  const TensorView* head = context->find(names.head + ".weight");
  const TensorView* embeddings = context->find(names.embedding + ".weight");
  if (!head) return;
  context->accounted.insert(head->name);
  const bool copy = embeddings && head->dtype == embeddings->dtype &&
                    head->shape == embeddings->shape &&
                    std::memcmp(head->data, embeddings->data, head->num_bytes()) == 0;
  if (copy) {
    context->warning(
        std::filesystem::path(head->file).filename(), head->name,
        "a copy of " + names.embedding + ".weight, not needed as tie_word_embeddings is true");
  } else {
    context->tensor_error(*head, "tie_word_embeddings is true, but this is not equal to " +
                                     names.embedding + ".weight; loaders use one or the other");
  }
}

// The linear layers of all blocks and the head, by name.
std::map<std::string, LinearInfo> linear_layers(const DecoderConfig& config) {
  std::map<std::string, LinearInfo> linears;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const auto& group : block_linears(config, layer)) {
      for (const LinearInfo& linear : group) linears[linear.name] = linear;
    }
  }
  if (!config.tied_embeddings && !config.bidirectional) {
    const std::string& head = config.names.head;
    linears[head] = {head, config.hidden_size, config.vocab_size, false};
  }
  return linears;
}

// What old checkpoints hold of rope and masks; loaders skip it.
bool is_constant(const std::string& name) {
  for (const char* constant :
       {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias",
        ".attention.masked_bias", "embeddings.position_ids"}) {
    if (name.ends_with(constant)) return true;
  }
  return false;
}

void check_known_family(Context* context) {
  adopt_bare_names(context->decoder->names,
                   [&](const std::string& name) { return context->find(name) != nullptr; });
  const std::map<std::string, LinearInfo> linears = linear_layers(*context->decoder);
  for (const TensorInfo& wanted : expected_tensors(*context->decoder)) {
    const bool is_weight = wanted.name.ends_with(".weight");
    const auto linear =
        is_weight ? linears.find(wanted.name.substr(0, wanted.name.size() - 7)) : linears.end();
    std::optional<Scheme> scheme;
    if (linear != linears.end() && context->quantization) {
      scheme = context->quantization->scheme_of(linear->first);
    }
    if (scheme) {
      check_quantized_layer(context, linear->first, *scheme, linear->second.out_features,
                            linear->second.in_features);
    } else {
      check_plain_tensor(context, wanted);
    }
  }
  check_tied_head(context);
  for (const auto& [name, tensor] : context->tensors) {
    if (context->accounted.count(name) || is_constant(name)) continue;
    // An encoder's pooler or head, which is not computed here.
    const DecoderConfig& config = *context->decoder;
    if (config.bidirectional && !name.starts_with(config.names.blocks)) continue;
    context->tensor_error(*tensor, "not part of the model that config.json describes");
  }
}

// Layers as the tensors spell them.
void check_unknown_family(Context* context) {
  if (!context->complete) return;
  std::optional<StoredTensors> stored;
  try {
    stored.emplace(context->path);
  } catch (const Error&) {
    return;  // check_files has said why
  }
  for (const StoredTensor& tensor : stored->tensors()) {
    const std::string& name = tensor.name;
    if (tensor.scheme) {
      check_quantized_layer(context, name.substr(0, name.size() - 7), *tensor.scheme,
                            tensor.shape[0], tensor.shape[1]);
    } else if (name.ends_with(".weight_packed")) {
      context->tensor_error(*tensor.parts[0], "the layer's tensors fit no layout that curvq reads");
    }
  }
}

}  // namespace

void check_layers(Context* context) {
  if (context->quantization_unread) return;
  if (context->decoder) {
    check_known_family(context);
  } else {
    check_unknown_family(context);
  }
}

void check_fused_layers(Context* context) {
  struct Member {
    std::string name, scheme;
    float global_divisor = 1, input_scale = 1;
  };
  std::map<std::string, std::vector<Member>> groups;
  for (const QuantizedLayer& layer : context->layers) {
    Member member{layer.name, layer.scheme.describe()};
    if (layer.scheme.scale_type == ScaleType::kE4M3) {
      const TensorView* scale = context->find(layer.name + ".weight_global_scale");
      convert_to_f32(scale->dtype, scale->data, 1, &member.global_divisor);
    }
    if (const TensorView* scale = input_scale_of(*context, layer.name))
      convert_to_f32(scale->dtype, scale->data, 1, &member.input_scale);
    groups[fused_group_key(layer.name)].push_back(member);
  }
  for (const auto& [name, tensor] : context->tensors) {
    if (!name.ends_with(".weight") || !is_plain_weight(tensor)) continue;
    const auto group = groups.find(fused_group_key(name.substr(0, name.size() - 7)));
    if (group != groups.end()) group->second.push_back({name.substr(0, name.size() - 7), "plain"});
  }
  for (const auto& [key, members] : groups) {
    if (members.size() < 2) continue;
    bool same_scheme = true, same_scale = true, same_inputs = true;
    std::string schemes, scales, inputs;
    for (const Member& member : members) {
      const std::string label = member.name.substr(member.name.rfind('.') + 1);
      schemes += (schemes.empty() ? "" : ", ") + label + " " + member.scheme;
      scales += (scales.empty() ? "" : ", ") + label + " " + format("%.9g", member.global_divisor);
      inputs += (inputs.empty() ? "" : ", ") + label + " " + format("%.9g", member.input_scale);
      same_scheme = same_scheme && member.scheme == members[0].scheme;
      // check_values speaks about NaN.
      same_scale = same_scale && !(member.global_divisor < members[0].global_divisor ||
                                   member.global_divisor > members[0].global_divisor);
      same_inputs = same_inputs && !(member.input_scale < members[0].input_scale ||
                                     member.input_scale > members[0].input_scale);
    }
    const TensorView* scale = context->find(members[0].name + ".weight_global_scale");
    if (!same_scheme) {
      context->error(kConfig, members[0].name,
                     "layers that loaders fuse need one scheme, these have " + schemes);
    } else if (!same_scale && scale) {
      context->tensor_error(*scale,
                            "layers that loaders fuse need one tensor scale, these have " + scales);
    }
    if (same_scheme && !same_inputs) {
      context->warning(
          kConfig, members[0].name,
          "layers that loaders fuse are given one scale of their inputs, these have " + inputs);
    }
  }
}

}  // namespace curvq::verify
