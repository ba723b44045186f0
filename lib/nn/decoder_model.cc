#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/io/model_files.h"
#include "curvq/kernels/dense.h"
#include "curvq/nn/bare_names.h"
#include "curvq/nn/decoder.h"
#include "curvq/nn/torch_tensor.h"
#include "nn/model_ends.h"

namespace curvq {
namespace {

void check_shape(const TensorView& tensor, const std::vector<int64_t>& shape) {
  if (tensor.shape != shape) {
    throw FormatError(tensor.file + ": " + tensor.name + " has shape " +
                      shape_string(tensor.shape) + ", config.json makes it " + shape_string(shape));
  }
  if (!is_floating_point(tensor.dtype)) {
    throw UnsupportedError(tensor.file + ": " + tensor.name + " is " +
                           std::string(dtype_name(tensor.dtype)) +
                           "; a plain weight must be F64, F32, F16 or BF16");
  }
}

void check_finite(const torch::Tensor& values, const TensorView& tensor) {
  if (values.numel() == 0) return;
  const auto [least, most] = values.aminmax();  // NaN if there is one
  if (std::isfinite(least.item<double>()) && std::isfinite(most.item<double>())) return;
  const torch::Tensor flat = values.flatten();
  const torch::Tensor bad = torch::nonzero(torch::logical_not(torch::isfinite(flat)));
  const int64_t first = bad[0][0].item<int64_t>();
  const int64_t cols = tensor.shape.back();
  throw NumericalError(
      format("%s: %s has %lld values that are not finite, the first at row %lld, column %lld; the "
             "checkpoint is damaged",
             tensor.file.c_str(), tensor.name.c_str(), static_cast<long long>(bad.size(0)),
             static_cast<long long>(first / cols), static_cast<long long>(first % cols)));
}

// Converts rows in parallel; a tensor that no rank describes has one row.
torch::Tensor to_float32(const TensorView& tensor) {
  torch::Tensor out = torch::empty(tensor.shape, torch::kFloat32);
  const int64_t rows = tensor.shape.size() > 1 ? tensor.shape[0] : 1;
  const int64_t cols = rows > 0 ? tensor.num_elements() / rows : 0;
  float* values = out.data_ptr<float>();
  constexpr int64_t kRows = 64;
  parallel_for(0, (rows + kRows - 1) / kRows, [&](int64_t i) {
    const int64_t begin = i * kRows, count = std::min(kRows, rows - begin);
    tensor.read_f32(begin * cols, count * cols, values + begin * cols);
  });
  return out;
}

std::optional<QuantizationConfig> read_quantization(const std::string& directory) {
  const std::string path = model_file_origin(directory, "config.json");
  const Json json = read_model_config(directory);
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (json.contains(key) && !json[key].is_null())
      return parse_quantization_config(json[key], path);
  }
  return std::nullopt;
}

constexpr std::pair<const char*, Engine> kEngines[] = {{"packed", Engine::kPacked},
                                                       {"packed-bf16", Engine::kPackedBF16},
                                                       {"packed-a15", Engine::kPackedA15},
                                                       {"packed-a8", Engine::kPackedA8},
                                                       {"dequantized", Engine::kDequantized}};

}  // namespace

Engine parse_engine(const std::string& name) {
  for (const auto& [known, engine] : kEngines) {
    if (name == known) return engine;
  }
  std::string known;
  for (const std::string& one : engine_names()) known += (known.empty() ? "" : ", ") + one;
  throw UsageError("engine '" + name + "' is not one of " + known);
}

std::vector<std::string> engine_names() {
  std::vector<std::string> names;
  for (const auto& [name, engine] : kEngines) names.emplace_back(name);
  return names;
}

DecoderModel::DecoderModel(const std::string& directory, Engine engine, torch::ScalarType dtype)
    : config_(DecoderConfig::from_directory(directory)),
      checkpoint_(std::make_shared<Checkpoint>(directory)),
      quantization_(read_quantization(directory)),
      engine_(engine),
      dtype_(dtype) {
  if (dtype_ != torch::kFloat32 && engine_ != Engine::kDequantized)
    throw UsageError("packed layers compute in float32; dequantize them for float64");
  adopt_bare_names(config_.names,
                   [&](const std::string& name) { return checkpoint_->find(name) != nullptr; });
  const auto scheme_of = [&](const std::string& name) {
    return quantization_ ? quantization_->scheme_of(name) : std::nullopt;
  };
  std::set<std::string> quantized;
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    for (const auto& group : block_linears(config_, layer)) {
      for (const LinearInfo& linear : group) {
        const auto scheme = scheme_of(linear.name);
        if (!scheme) continue;
        quantized.insert(linear.name + ".weight");
        if (!scheme->divides(linear.in_features)) {
          throw FormatError(
              format("%s: group size %lld does not divide the %lld inputs of %s, which "
                     "quantization_config does not ignore",
                     directory.c_str(), static_cast<long long>(scheme->group_size),
                     static_cast<long long>(linear.in_features), linear.name.c_str()));
        }
        for (const TensorInfo& info : compressed_tensors_infos(
                 linear.name, *scheme, linear.out_features, linear.in_features)) {
          checkpoint_->at(info.name);
        }
      }
    }
  }
  for (const TensorInfo& info : expected_tensors(config_)) {
    if (quantized.count(info.name) > 0) continue;
    const TensorView* tensor = checkpoint_->find(info.name);
    if (tensor == nullptr) {
      const bool bias =
          info.name.size() > 5 && info.name.compare(info.name.size() - 5, 5, ".bias") == 0;
      throw FormatError(directory + ": " + info.name + " " + shape_string(info.shape) +
                        " is missing, which config.json asks for" +
                        (bias ? " (attention_bias or mlp_bias is true)" : "") +
                        "; the checkpoint is incomplete or the config is another model's");
    }
    check_shape(*tensor, info.shape);
  }
  const std::string behind = config_.names.block(config_.num_layers);
  for (const TensorView* tensor : checkpoint_->tensors()) {
    if (tensor->name.rfind(behind, 0) != 0) continue;
    log_warning(format(
        "%s: there is %s, but num_hidden_layers is %lld; layers from there on take "
        "no part",
        directory.c_str(), tensor->name.c_str(), static_cast<long long>(config_.num_layers)));
    break;
  }
  const std::string& head = config_.names.head;
  if (scheme_of(head) && !config_.tied_embeddings &&
      checkpoint_->find(head + ".weight_packed") != nullptr) {
    throw UnsupportedError(directory + ": " + head + " is quantized, which is not handled");
  }
  final_norm_ = load_norm(config_.names.final_norm, config_.hidden_size);
  if (!config_.names.positions.empty()) {
    positions_ = load_float(config_.names.positions + ".weight",
                            {config_.max_positions + config_.position_offset, config_.hidden_size});
  }
  if (!config_.names.token_types.empty()) {
    const torch::Tensor types = load_float(config_.names.token_types + ".weight",
                                           {config_.num_token_types, config_.hidden_size});
    positions_ = positions_ + types[0];
  }
  embedding_norm_ = load_norm(config_.names.embedding_norm, config_.hidden_size);
}

torch::Tensor DecoderModel::load_float(const std::string& name,
                                       const std::vector<int64_t>& shape) const {
  const TensorView& tensor = checkpoint_->at(name);
  check_shape(tensor, shape);
  torch::Tensor values =
      dtype_ == torch::kFloat32 ? to_float32(tensor) : to_torch(tensor).to(dtype_);
  check_finite(values, tensor);
  return values;
}

Norm DecoderModel::load_norm(const std::string& name, int64_t size) const {
  Norm norm;
  norm.kind = config_.norm;
  norm.epsilon = config_.norm_epsilon;
  norm.name = name;
  const std::vector<TensorInfo> tensors = norm_tensors(config_, name, size);
  if (!tensors.empty()) norm.weight = load_float(tensors[0].name, tensors[0].shape);
  if (tensors.size() > 1) norm.bias = load_float(tensors[1].name, tensors[1].shape);
  return norm;
}

torch::Tensor DecoderModel::embed(const torch::Tensor& ids, int64_t begin) const {
  const TensorView& table = checkpoint_->at(config_.names.embedding + ".weight");
  const int64_t hidden = config_.hidden_size;
  const torch::Tensor flat = ids.contiguous().view({-1});
  torch::Tensor out = torch::empty({flat.size(0), hidden}, torch::kFloat32);
  const int64_t* id = flat.data_ptr<int64_t>();
  float* rows = out.data_ptr<float>();
  for (int64_t i = 0; i < flat.size(0); ++i) {
    if (id[i] < 0 || id[i] >= config_.vocab_size) {
      throw UsageError(format("token id %lld is outside the model's vocabulary of %lld",
                              static_cast<long long>(id[i]),
                              static_cast<long long>(config_.vocab_size)));
    }
    if (dtype_ == torch::kFloat32) table.read_f32(id[i] * hidden, hidden, rows + i * hidden);
  }
  if (dtype_ != torch::kFloat32) out = load_float(table.name, table.shape).index_select(0, flat);
  check_finite(out, table);
  std::vector<int64_t> shape(ids.sizes().begin(), ids.sizes().end());
  shape.push_back(hidden);
  return embedding_norm_.forward(stream_of(out.view(shape), positions_, begin, config_));
}

Linear DecoderModel::load_linear(const LinearInfo& info) const {
  Linear linear;
  linear.info = info;
  const auto scheme = quantization_ ? quantization_->scheme_of(info.name) : std::nullopt;
  if (scheme) {
    auto packed = std::make_shared<QuantizedMatrix>(
        compressed_tensors_unpack(*checkpoint_, info.name, *scheme));
    if (packed->rows() != info.out_features || packed->cols() != info.in_features) {
      throw FormatError(checkpoint_->path() + ": " + info.name + " is packed as " +
                        shape_string({packed->rows(), packed->cols()}) + ", config.json makes it " +
                        shape_string({info.out_features, info.in_features}));
    }
    linear.inputs = packed->scheme().inputs;
    linear.input_scale = packed->input_scale;
    if (engine_ != Engine::kDequantized) {
      linear.prepacked.emplace(*packed);
      linear.rounding = engine_ == Engine::kPackedBF16  ? InputRounding::kBF16
                        : engine_ == Engine::kPackedA15 ? InputRounding::kA15
                        : engine_ == Engine::kPackedA8  ? InputRounding::kA8
                                                        : InputRounding::kNone;
    } else {
      linear.weight = torch::empty({info.out_features, info.in_features}, torch::kFloat32);
      dequantize(*packed, linear.weight.data_ptr<float>());
      linear.weight = linear.weight.to(dtype_);
    }
  } else if (config_.transposed_weights) {
    linear.weight = load_float(info.name + ".weight", {info.in_features, info.out_features});
    linear.weight = linear.weight.t().contiguous();
  } else {
    linear.weight = load_float(info.name + ".weight", {info.out_features, info.in_features});
  }
  if (info.has_bias) linear.bias = load_float(info.name + ".bias", {info.out_features});
  return linear;
}

DecoderBlock DecoderModel::load_block(int64_t layer) const {
  DecoderBlock block;
  block.config = config_;
  block.layer = layer;
  block.window = config_.window(layer);
  block.rope = block.window > 0 && config_.local_rope ? *config_.local_rope : config_.rope;
  const DecoderNames& names = config_.names;
  const auto norm = [&](const std::string& name, int64_t size) {
    return load_norm(name.empty() ? name : names.block(layer) + name, size);
  };
  block.attention_norm = norm(names.attention_norm, config_.hidden_size);
  block.post_attention_norm = norm(names.post_attention_norm, config_.hidden_size);
  block.mlp_norm = norm(names.mlp_norm, config_.hidden_size);
  block.post_mlp_norm = norm(names.post_mlp_norm, config_.hidden_size);
  const bool whole = config_.whole_qk_norm;
  block.q_norm = norm(names.q_norm, config_.head_dim * (whole ? config_.num_heads : 1));
  block.k_norm = norm(names.k_norm, config_.head_dim * (whole ? config_.num_kv_heads : 1));
  block.qkv.resize(names.qkv.size());
  block.mlps.resize(config_.num_mlps());
  for (DecoderBlock::Mlp& mlp : block.mlps) mlp.gate_up.resize(names.gate_up.size());
  if (config_.num_experts > 0) {
    const std::string router = names.block(layer) + names.router;
    block.router = load_float(router + ".weight", {config_.num_experts, config_.hidden_size});
    if (config_.router_bias)
      block.router_bias = load_float(router + ".bias", {config_.num_experts});
  }
  if (!names.sinks.empty())
    block.sinks = load_float(names.block(layer) + names.sinks, {config_.num_heads});
  const auto infos = block_linears(config_, layer);
  const auto linears = block.linears();
  for (size_t group = 0; group < linears.size(); ++group) {
    for (size_t i = 0; i < linears[group].size(); ++i)
      *linears[group][i] = load_linear(infos[group][i]);
  }
  return block;
}

void DecoderModel::release_block(int64_t layer) const {
  const std::string prefix = config_.names.block(layer);
  for (const TensorView* tensor : checkpoint_->tensors()) {
    if (tensor->name.compare(0, prefix.size(), prefix) == 0) checkpoint_->release(*tensor);
  }
}

torch::Tensor DecoderModel::head_input(const torch::Tensor& hidden) const {
  return final_norm_.forward(hidden);
}

std::string DecoderModel::head_tensor() const {
  return (config_.tied_embeddings ? config_.names.embedding : config_.names.head) + ".weight";
}

bool DecoderModel::has_bf16_head() const {
  return dtype_ == torch::kFloat32 && checkpoint_->at(head_tensor()).dtype == DType::kBF16;
}

torch::Tensor DecoderModel::head_output(const torch::Tensor& hidden) const {
  config_.require_head("a distribution of tokens");
  const TensorView& tensor = checkpoint_->at(head_tensor());
  const std::vector<int64_t> shape = {config_.vocab_size, config_.hidden_size};
  const torch::Tensor input = head_input(hidden);
  if (input.numel() == config_.hidden_size && !input.requires_grad() && has_bf16_head()) {
    if (!bf16_head_.defined()) {
      check_shape(tensor, shape);
      bf16_head_ = to_torch(tensor);
      check_finite(bf16_head_, tensor);
      checkpoint_->release(tensor);
    }
    std::vector<int64_t> sizes(input.sizes().begin(), input.sizes().end());
    sizes.back() = config_.vocab_size;
    torch::Tensor out = torch::empty(sizes, torch::kFloat32);
    gemv_bf16(static_cast<const uint16_t*>(bf16_head_.data_ptr()), config_.vocab_size,
              config_.hidden_size, input.contiguous().data_ptr<float>(), out.data_ptr<float>());
    return out;
  }
  if (!head_.defined()) {
    head_ = load_float(tensor.name, shape);
    checkpoint_->release(tensor);
  }
  return torch::linear(input, head_);
}

torch::Tensor DecoderModel::logits_of(const torch::Tensor& head_output) const {
  return curvq::logits_of(head_output, config_);
}

torch::Tensor DecoderModel::logits(const torch::Tensor& hidden) const {
  return logits_of(head_output(hidden));
}

torch::Tensor DecoderModel::hidden_states(const torch::Tensor& ids) const {
  torch::NoGradGuard no_grad;
  torch::Tensor x = embed(ids);
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    const DecoderBlock block = load_block(layer);
    for (int64_t i = 0; i < x.size(0); ++i) {
      torch::Tensor window = x.narrow(0, i, 1);
      window.copy_(block.forward(window));
    }
    release_block(layer);
  }
  return x;
}

}  // namespace curvq
