#include "inspect_script.h"

#include "curvq/core/log.h"
#include "curvq/nn/script_model.h"
#include "curvq/report/table.h"

namespace curvq::cli {
namespace {

// "2 x 2" for a stride; "" where there is none.
std::string sizes_text(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

}  // namespace

OrderedJson script_json(const StoredTensors& tensors) {
  const ScriptModel& script = *tensors.script();
  OrderedJson json = {{"family", "torchscript"},
                      {"supported", !script.signature().empty()},
                      {"forward", script.signature()},
                      {"layers", OrderedJson::array()}};
  for (const ScriptLayer& layer : script.layers()) {
    OrderedJson row = {{"name", layer.name},
                       {"operator", layer.op},
                       {"weight", layer.weight},
                       {"weight_shape", layer.shape},
                       {"shape", {layer.rows, layer.cols}}};
    if (layer.shape.size() > 2) {
      row["stride"] = layer.stride;
      row["groups"] = layer.groups;
    }
    if (!layer.obstacle.empty()) row["kept"] = layer.obstacle;
    json["layers"].push_back(std::move(row));
  }
  return json;
}

std::string script_text(const StoredTensors& tensors) {
  const ScriptModel& script = *tensors.script();
  return "TorchScript, " + (script.signature().empty() ? "no forward" : script.signature()) +
         format("; %zu linear layers and convolutions", script.layers().size());
}

std::string script_layer_table(const StoredTensors& tensors, bool color) {
  using Align = Table::Align;
  Table table({{"layer of forward"},
               {"operator"},
               {"weight", Align::kRight},
               {"stride", Align::kRight},
               {"groups", Align::kRight},
               {"kept, because"}});
  for (const ScriptLayer& layer : tensors.script()->layers()) {
    const bool convolution = layer.shape.size() > 2;
    table.add_row({layer.name, layer.op, sizes_text(layer.shape), sizes_text(layer.stride),
                   convolution && layer.groups > 0 ? std::to_string(layer.groups) : "",
                   layer.obstacle});
  }
  return table.str(color);
}

}  // namespace curvq::cli
