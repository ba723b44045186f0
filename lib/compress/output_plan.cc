#include "compress/output_plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/io/expert_tensors.h"
#include "curvq/nn/decoder_config.h"

namespace curvq {

namespace {

// That hold a layer's weight in the source.
std::vector<std::string> weight_tensors(const PlannedLayer& layer) {
  if (!layer.stored) return {layer.name + ".weight"};
  std::vector<std::string> names;
  for (const TensorInfo& part :
       compressed_tensors_infos(layer.name, *layer.stored, layer.rows, layer.cols))
    names.push_back(part.name);
  return names;
}

// Where all experts are kept as they are and plain, the tensors that hold them: other programs want
// these, not the parts that the checkpoint lists.
struct WholeExperts {
  std::vector<const TensorView*> tensors;
  std::set<std::string> parts;
};

WholeExperts whole_experts(const Checkpoint& source, const std::vector<PlannedLayer>& layers) {
  std::set<std::string> touched;
  for (const PlannedLayer& layer : layers) {
    if (layer.stored) return {};
    if (layer.scheme) touched.insert(layer.name + ".weight");
  }
  WholeExperts experts;
  for (const SafetensorsFile& file : source.files()) {
    for (const TensorView& tensor : file.tensors()) {
      if (source.find(tensor.name) != nullptr) continue;
      experts.tensors.push_back(&tensor);
      for (const TensorView& part : expert_views(tensor)) {
        if (touched.count(part.name) > 0) return {};
        experts.parts.insert(part.name);
      }
    }
  }
  return experts;
}

}  // namespace

OutputPlan plan_output(const Checkpoint& source, const std::vector<PlannedLayer>& layers) {
  std::map<std::string, const PlannedLayer*> replaced;
  for (const PlannedLayer& layer : layers) {
    if (!layer.scheme) continue;
    for (const std::string& name : weight_tensors(layer)) replaced[name] = &layer;
  }
  OutputPlan plan;
  std::set<const PlannedLayer*> planned;
  const WholeExperts experts = whole_experts(source, layers);
  plan.copied = experts.tensors;
  for (const TensorView* tensor : experts.tensors) plan.tensors.push_back(*tensor);
  for (const TensorView* tensor : source.tensors()) {
    plan.original_bytes += tensor->num_bytes();
    if (experts.parts.count(tensor->name) > 0) continue;
    const auto it = replaced.find(tensor->name);
    if (it == replaced.end()) {
      plan.copied.push_back(tensor);
      plan.tensors.push_back(*tensor);
      continue;
    }
    const PlannedLayer& layer = *it->second;
    if (!planned.insert(&layer).second) continue;
    for (TensorInfo& info :
         compressed_tensors_infos(layer.name, *layer.scheme, layer.rows, layer.cols)) {
      plan.tensors.push_back(std::move(info));
    }
  }
  for (const TensorInfo& info : plan.tensors) plan.stored_bytes += info.num_bytes();
  return plan;
}

QuantizationConfig describe_plan(const std::vector<PlannedLayer>& layers,
                                 const std::vector<std::string>& untouched) {
  QuantizationConfig config;
  for (const PlannedLayer& layer : layers) {
    if (!layer.scheme && !layer.stored) {
      config.ignore.push_back(layer.name);
      continue;
    }
    // What the file does not say does not tell groups apart.
    Scheme scheme = layer.scheme ? *layer.scheme : *layer.stored;
    scheme.rule = ScaleRule::kCurvq;
    scheme.mx_rule = MxRule::kEven;
    scheme.scale_dtype = scheme.source_dtype = DType::kF32;
    const auto group = std::find_if(config.groups.begin(), config.groups.end(),
                                    [&](const QuantizationGroup& g) { return g.scheme == scheme; });
    if (group == config.groups.end()) {
      config.groups.push_back({scheme, {layer.name}});
    } else {
      group->targets.push_back(layer.name);
    }
  }
  if (config.groups.size() == 1) config.groups.front().targets = {"Linear"};
  config.ignore.insert(config.ignore.end(), untouched.begin(), untouched.end());
  return config;
}

namespace {

// Of a layer that comes packed.
float largest_magnitude(const Checkpoint& source, const PlannedLayer& layer) {
  const QuantizedMatrix matrix = compressed_tensors_unpack(source, layer.name, *layer.stored);
  std::vector<float> row(static_cast<size_t>(layer.cols));
  float largest = 0;
  for (int64_t r = 0; r < layer.rows; ++r) {
    dequantize_row(matrix, r, 0, layer.cols, row.data());
    largest = std::max(largest, max_abs(row.data(), layer.cols));
  }
  return largest;
}

// Largest magnitude of a tensor, read piece by piece.
float largest_magnitude(const TensorView& tensor) {
  constexpr int64_t kPiece = 1 << 18;
  const int64_t count = tensor.num_elements(), pieces = (count + kPiece - 1) / kPiece;
  std::vector<float> largest(pieces, 0.0f);
  parallel_for(0, pieces, [&](int64_t i) {
    const int64_t begin = i * kPiece, size = std::min(kPiece, count - begin);
    std::vector<float> values(size);
    tensor.read_f32(begin, size, values.data());
    largest[i] = max_abs(values.data(), size);
    if (std::isfinite(largest[i])) return;
    const auto bad =
        std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
    const int64_t index = begin + (bad - values.begin()),
                  cols = tensor.shape.empty() ? 1 : tensor.shape.back();
    throw NumericalError(format(
        "%s: %s has a value that is not finite at row %lld, column %lld (%g); the checkpoint is "
        "damaged, fetch it again",
        tensor.file.c_str(), tensor.name.c_str(), static_cast<long long>(index / cols),
        static_cast<long long>(index % cols), static_cast<double>(*bad)));
  });
  return pieces == 0 ? 0.0f : *std::max_element(largest.begin(), largest.end());
}

}  // namespace

std::map<std::string, float> scan_weights(const Checkpoint& source,
                                          const std::vector<PlannedLayer>& layers) {
  std::map<std::string, std::string> group_of;
  for (const PlannedLayer& layer : layers) {
    if (layer.scheme) group_of[layer.name + ".weight"] = fused_group_key(layer.name);
  }
  std::map<std::string, float> amax;
  for (const TensorView* tensor : source.tensors()) {
    if (!is_floating_point(tensor->dtype)) continue;
    const float largest = largest_magnitude(*tensor);
    source.release(*tensor);
    const auto group = group_of.find(tensor->name);
    if (group == group_of.end()) continue;
    float& shared = amax[group->second];
    shared = std::max(shared, largest);
  }
  for (const PlannedLayer& layer : layers) {
    if (!layer.scheme || !layer.stored) continue;
    float& shared = amax[fused_group_key(layer.name)];
    shared = std::max(shared, largest_magnitude(source, layer));
  }
  return amax;
}

}  // namespace curvq
