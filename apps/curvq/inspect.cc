// curvq inspect: what a checkpoint holds.
#include "commands.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/eval/stored_tensors.h"
#include "curvq/nn/decoder_config.h"
#include "curvq/report/numbers.h"
#include "inspect_blocks.h"
#include "inspect_script.h"
#include "inspect_sparsity.h"

namespace curvq::cli {
namespace {

// Tensors stored the same way, or all of them.
struct Totals {
  int64_t tensors = 0, parameters = 0, bytes = 0;

  void add(const StoredTensor& tensor) {
    ++tensors;
    parameters += tensor.num_elements();
    bytes += tensor.stored_bytes();
  }
  double bits() const { return parameters == 0 ? 0 : 8.0 * bytes / parameters; }
  OrderedJson to_json() const {
    return {{"num_tensors", tensors},
            {"parameters", parameters},
            {"bytes", bytes},
            {"bits_per_weight", bits()}};
  }
};

struct Architecture {
  std::optional<DecoderConfig> config;
  std::string family;  // config.json's model_type, whether known or not
  std::string note;    // why `config` is empty
};

Architecture read_architecture(const StoredTensors& tensors) {
  Architecture architecture;
  const std::string& path = tensors.path();
  if (tensors.config().is_null()) {
    architecture.note = "no config.json: tensors only";
    return architecture;
  }
  architecture.family =
      json_string(tensors.config(), "model_type", "unknown", path + "/config.json");
  try {
    architecture.config = DecoderConfig::from_directory(path);
  } catch (const UnsupportedError& error) {
    architecture.note = error.what();
  }
  return architecture;
}

OrderedJson to_json(const Architecture& architecture) {
  OrderedJson json = OrderedJson::object();
  if (!architecture.family.empty()) json["family"] = architecture.family;
  json["supported"] = architecture.config.has_value();
  if (!architecture.config) return json["note"] = architecture.note, json;
  const DecoderConfig& config = *architecture.config;
  json["layers"] = config.num_layers;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["heads"] = config.num_heads;
  json["kv_heads"] = config.num_kv_heads;
  json["head_dim"] = config.head_dim;
  json["vocab_size"] = config.vocab_size;
  json["max_positions"] = config.max_positions;
  json["tied_embeddings"] = config.tied_embeddings;
  return json;
}

std::string to_text(const Architecture& architecture) {
  if (!architecture.config) {
    const std::string family = architecture.family.empty() ? "" : architecture.family + "; ";
    return family + architecture.note;
  }
  const DecoderConfig& config = *architecture.config;
  return format(
      "%s, %lld layers, hidden %lld, MLP %lld, %lld heads of %lld (%lld for keys), "
      "vocabulary %lld, context %lld%s",
      config.family.c_str(), static_cast<long long>(config.num_layers),
      static_cast<long long>(config.hidden_size), static_cast<long long>(config.intermediate_size),
      static_cast<long long>(config.num_heads), static_cast<long long>(config.head_dim),
      static_cast<long long>(config.num_kv_heads), static_cast<long long>(config.vocab_size),
      static_cast<long long>(config.max_positions),
      config.tied_embeddings ? ", tied embeddings" : "");
}

OrderedJson to_json(const StoredTensor& tensor) {
  OrderedJson json = {{"name", tensor.name}, {"shape", tensor.shape}};
  if (tensor.scheme) json["scheme"] = tensor.scheme->name();
  json["format"] = tensor.format();
  json["parameters"] = tensor.num_elements();
  json["bytes"] = tensor.stored_bytes();
  json["bits_per_weight"] = bits_per_weight(tensor);
  json["stored"] = OrderedJson::array();
  for (const TensorView* part : tensor.parts) {
    json["stored"].push_back({{"name", part->name},
                              {"dtype", part->format()},
                              {"shape", part->shape},
                              {"file", part->file}});
  }
  return json;
}

void declare(Options& options) {
  options
      .add_positional("MODEL",
                      "model directory, original or quantized, a .gguf, a TorchScript .pt, or a "
                      "bare .safetensors")
      .add_flag("tensors", "list every tensor; otherwise blocks that are alike are shown once")
      .add_flag("sparsity",
                "count zeros, and compare what dense, CSR, bitmask and 2:4 layouts take")
      .add_flag("no-hash", "leave the content hash, which reads all of the data, out of the JSON")
      .add_example("inspect models/SmolLM2-135M");
}

int run(const Options& options, Output& output) {
  const StoredTensors tensors(options.positional("MODEL"));
  const bool script = tensors.script() != nullptr;
  Architecture architecture;
  if (!script) architecture = read_architecture(tensors);
  if (!tensors.unread_quantization().empty()) log_warning(tensors.unread_quantization());

  Totals all, quantized;
  std::map<std::string, Totals> formats;
  for (const StoredTensor& tensor : tensors.tensors()) {
    all.add(tensor);
    if (tensor.scheme) quantized.add(tensor);
    formats[tensor.format()].add(tensor);
  }

  output.add_checkpoint("model", tensors.path(), !options.flag("no-hash"));
  OrderedJson& results = output.results();
  results["architecture"] = script ? script_json(tensors) : to_json(architecture);
  results["files"] = tensors.num_files();
  results.update(all.to_json());
  results["quantized"] = quantized.to_json();
  results["formats"] = OrderedJson::object();
  for (const auto& [name, totals] : formats) results["formats"][name] = totals.to_json();
  OrderedJson list = OrderedJson::array();
  for (const StoredTensor& tensor : tensors.tensors()) list.push_back(to_json(tensor));
  results["tensors"] = std::move(list);

  output.text(bold(tensors.path(), output.color()) + "\n" +
              (script ? script_text(tensors) : to_text(architecture)) + "\n");
  output.text(format("%s parameters (%s) in %lld tensors, %s in %zu file%s, %.3f bits a weight\n",
                     with_separators(all.parameters).c_str(), count_text(all.parameters).c_str(),
                     static_cast<long long>(all.tensors), bytes_text(all.bytes).c_str(),
                     tensors.num_files(), tensors.num_files() == 1 ? "" : "s", all.bits()));
  using Align = Table::Align;
  Table summary({{"format"},
                 {"tensors", Align::kRight},
                 {"parameters", Align::kRight},
                 {"bytes", Align::kRight},
                 {"bits", Align::kRight}});
  for (const auto& [name, totals] : formats) {
    summary.add_row({name, std::to_string(totals.tensors), with_separators(totals.parameters),
                     bytes_text(totals.bytes), format("%.3f", totals.bits())});
  }
  output.text("\n" + summary.str(output.color()) + "\n");
  output.text(tensor_table(tensors.tensors(), !options.flag("tensors")).str(output.color()));
  if (script) output.text("\n" + script_layer_table(tensors, output.color()));
  if (options.flag("sparsity")) report_sparsity(tensors, output);
  return 0;
}

}  // namespace

const Command kInspectCommand = {"inspect", "architecture, tensors, formats, sizes, bits a weight",
                                 declare, run};

}  // namespace curvq::cli
