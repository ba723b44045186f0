#include "nn/script_layers.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <optional>
#include <set>

namespace curvq::internal {
namespace {

using torch::jit::Node;
using torch::jit::Value;

// Where an operator has what.
struct LayerOp {
  size_t weight;
  bool transposed_weight = false;  // multiplies with W^T
  size_t stride = 0, groups = 0;   // of a convolution
  size_t transposed = 0;           // a flag, where the operator has one
  bool is_transposed = false;
};

const std::map<std::string, LayerOp>& layer_ops() {
  static const std::map<std::string, LayerOp> ops = {
      {"aten::linear", {1}},
      {"aten::addmm", {2, true}},
      {"aten::matmul", {1, true}},
      {"aten::mm", {1, true}},
      {"aten::conv1d", {1, false, 3, 6}},
      {"aten::conv2d", {1, false, 3, 6}},
      {"aten::conv3d", {1, false, 3, 6}},
      {"aten::_convolution", {1, false, 3, 8, 6}},
      {"aten::convolution", {1, false, 3, 8, 6}},
      {"aten::conv_transpose1d", {1, false, 3, 6, 0, true}},
      {"aten::conv_transpose2d", {1, false, 3, 6, 0, true}},
      {"aten::conv_transpose3d", {1, false, 3, 6, 0, true}},
  };
  return ops;
}

// Operators that look at a tensor but not at its values.
bool ignores_values(const Node& node) {
  static const std::set<std::string> kinds = {"aten::size",      "aten::dim",
                                              "aten::len",       "aten::__is__",
                                              "aten::__isnot__", "prim::dtype",
                                              "prim::device",    "prim::layout",
                                              "prim::shape",     "aten::is_floating_point",
                                              "aten::numel",     "prim::requires_grad"};
  return kinds.count(node.kind().toQualString()) > 0;
}

class LayerFinder {
 public:
  LayerFinder(const torch::jit::Module& module, const TensorOfAttribute& tensor_of)
      : module_(module),
        tensor_of_(tensor_of),
        graph_(module.get_method("forward").graph()->copy()) {
    torch::jit::Inline(*graph_);
  }

  std::vector<ScriptLayer> find() {
    go_through(graph_->block());
    for (ScriptLayer& layer : layers_) {
      const auto other = other_uses_.find(layer.weight);
      if (other != other_uses_.end() && layer.obstacle.empty())
        layer.obstacle = "its weight is also used by " + other->second;
    }
    return std::move(layers_);
  }

 private:
  // A tensor of the module, as it is or transposed.
  struct Operand {
    const ScriptTensor* tensor;
    bool transposed = false;
  };

  // "encoder.0.weight" for an attribute of the module, "" for the module itself.
  std::optional<std::string> attribute_path(const Value* value) const {
    if (value == graph_->inputs()[0]) return "";
    if (value->node()->kind() != torch::jit::prim::GetAttr) return std::nullopt;
    const auto owner = attribute_path(value->node()->input());
    if (!owner) return std::nullopt;
    const std::string name = value->node()->s(torch::jit::attr::name);
    return owner->empty() ? name : *owner + "." + name;
  }

  // A constant, or an attribute, which layers do not change either.
  std::optional<c10::IValue> constant(const Value* value) const {
    if (const auto known = torch::jit::toIValue(value)) return known;
    const auto path = attribute_path(value);
    if (!path || path->empty()) return std::nullopt;
    c10::IValue attribute = module_._ivalue();
    for (size_t begin = 0; begin <= path->size();) {
      const size_t end = std::min(path->find('.', begin), path->size());
      attribute = attribute.toObject()->getAttr(path->substr(begin, end - begin));
      begin = end + 1;
    }
    return attribute;
  }

  std::vector<int64_t> integers(const Value* list) const {
    if (const auto known = constant(list)) {
      return known->isIntList() ? known->toIntVector() : std::vector<int64_t>();
    }
    std::vector<int64_t> values;
    if (list->node()->kind() != torch::jit::prim::ListConstruct) return values;
    for (const Value* item : list->node()->inputs()) {
      const auto value = constant(item);
      if (!value || !value->isInt()) return {};
      values.push_back(value->toInt());
    }
    return values;
  }

  std::optional<Operand> operand(const Value* value) const {
    const Node* node = value->node();
    const std::string kind = node->kind().toQualString();
    const auto dimension = [&](size_t i) {
      const auto known = constant(node->input(i));
      return known && known->isInt() ? (known->toInt() + 2) % 2 : 0;
    };
    const bool turns = kind == "aten::t" || kind == "aten::numpy_T" ||
                       (kind == "aten::transpose" && dimension(1) != dimension(2));
    if (turns || kind == "prim::unchecked_cast" || kind == "aten::detach") {
      auto inner = operand(node->input(0));
      if (inner) inner->transposed ^= turns;
      return inner;
    }
    const auto path = attribute_path(value);
    if (!path) return std::nullopt;
    const ScriptTensor* tensor = tensor_of_(*path);
    return tensor != nullptr ? std::optional(Operand{tensor}) : std::nullopt;
  }

  // Whether the node hands on what it is given, so that its own uses count.
  bool hands_on(const Node& node) const {
    return node.outputs().size() == 1 && operand(node.output()).has_value();
  }

  void go_through(const torch::jit::Block* block) {
    for (const Node* node : block->nodes()) {
      const auto op = layer_ops().find(node->kind().toQualString());
      for (size_t i = 0; i < node->inputs().size(); ++i) {
        const auto tensor = operand(node->input(i));
        if (!tensor || hands_on(*node) || ignores_values(*node)) continue;
        if (op != layer_ops().end() && i == op->second.weight && add(*node, op->second, *tensor))
          continue;
        other_uses_.emplace(tensor->tensor->name, node->kind().toQualString());
      }
      for (const torch::jit::Block* inner : node->blocks()) go_through(inner);
    }
    for (const Value* output : block->outputs()) {
      if (const auto tensor = operand(output))
        other_uses_.emplace(tensor->tensor->name, "the code behind a branch");
    }
  }

  // False if the operator is no layer after all.
  bool add(const Node& node, const LayerOp& op, const Operand& weight) {
    const torch::Tensor& value = weight.tensor->value;
    const bool convolution = op.stride > 0;
    if (convolution ? value.dim() < 3 : value.dim() != 2) return false;
    ScriptLayer layer;
    layer.weight = layer.name = weight.tensor->name;
    if (layer.name.ends_with(".weight")) layer.name.resize(layer.name.size() - 7);
    layer.op = node.kind().toUnqualString();
    layer.shape = value.sizes().vec();
    layer.rows = value.size(0);
    layer.cols = value.size(0) == 0 ? 0 : value.numel() / value.size(0);
    bool transposed = op.is_transposed;
    if (convolution) {
      layer.stride = integers(node.input(op.stride));
      const auto groups = constant(node.input(op.groups));
      layer.groups = groups && groups->isInt() ? groups->toInt() : 0;
      const auto flag = op.transposed > 0 ? constant(node.input(op.transposed)) : std::nullopt;
      transposed = transposed || (flag && flag->toBool());
    }
    layer.obstacle = obstacle(layer, weight, transposed, op.transposed_weight);
    const auto known = std::find_if(layers_.begin(), layers_.end(), [&](const ScriptLayer& other) {
      return other.weight == layer.weight;
    });
    if (known == layers_.end()) {
      layers_.push_back(std::move(layer));
    } else if (known->obstacle.empty()) {
      known->obstacle = layer.obstacle;
    }
    return true;
  }

  static std::string obstacle(const ScriptLayer& layer, const Operand& weight, bool transposed,
                              bool transposed_weight) {
    const torch::Tensor& value = weight.tensor->value;
    if (!weight.tensor->is_parameter) return "its weight is a buffer, not a parameter";
    if (value.numel() == 0) return "its weight is empty";
    if (!value.is_floating_point())
      return std::string("its weight is ") + torch::toString(value.scalar_type());
    if (transposed) return "a transposed convolution";
    if (layer.groups == 0) return "a convolution whose groups are no constant";
    if (layer.groups > 1) return "a convolution of " + std::to_string(layer.groups) + " groups";
    if (value.dim() > 4) return "a 3-D convolution";
    if (weight.transposed != transposed_weight) return "its weight is stored as [in, out]";
    return "";
  }

  const torch::jit::Module& module_;
  const TensorOfAttribute& tensor_of_;
  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<ScriptLayer> layers_;
  std::map<std::string, std::string> other_uses_;  // by the weight's name: the first such operator
};

}  // namespace

std::vector<ScriptLayer> find_script_layers(const torch::jit::Module& module,
                                            const TensorOfAttribute& tensor_of) {
  if (!module.find_method("forward")) return {};
  return LayerFinder(module, tensor_of).find();
}

}  // namespace curvq::internal
