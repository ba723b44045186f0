// TorchScript files: their tensors, and the linear layers and convolutions in forward().
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace curvq {

// On the CPU. Throws UsageError if there is no such file, FormatError if it is not TorchScript.
std::shared_ptr<torch::jit::Module> load_script_module(const std::string& path);

struct ScriptTensor {
  std::string name;           // "encoder.0.weight"; of several names for one tensor the first
  torch::Tensor value;        // shared with the module
  bool is_parameter = false;  // else a buffer
};

// An operator of forward() that multiplies with one tensor of the module, wherever control flow
// puts it: aten::linear, addmm, mm or matmul with the transposed weight, or a convolution.
struct ScriptLayer {
  std::string name;             // of the weight, without ".weight"
  std::string weight;           // "encoder.0.weight"
  std::string op;               // "linear", "addmm", "conv1d", "conv2d", ...
  std::vector<int64_t> shape;   // of the weight: [out, in], [out, in / groups, kernel...]
  int64_t rows = 0, cols = 0;   // the weight as a matrix: [out, everything else]
  std::vector<int64_t> stride;  // of a convolution; empty where no constants
  int64_t groups = 1;           // 0: no constant
  // Why no rounding for the sake of its inputs is known here; empty if it is: a 1-D or 2-D
  // convolution of one group or a linear layer, of a floating-point parameter that nothing else
  // computes with.
  std::string obstacle;
};

// A module in evaluation mode. forward() is not safe to call concurrently.
class ScriptModel {
 public:
  // Throws as load_script_module().
  explicit ScriptModel(const std::string& path);

  const std::string& path() const { return path_; }
  // "forward(Tensor x) -> Tensor"; empty if there is none.
  std::string signature() const;
  // Parameters, then buffers.
  const std::vector<ScriptTensor>& tensors() const { return tensors_; }
  // nullptr if there is none of that name.
  const ScriptTensor* find(const std::string& name) const;
  // In the order of the code.
  const std::vector<ScriptLayer>& layers() const { return layers_; }

  // forward(x) without gradients, not fused. Floating-point x are converted to the dtype of the
  // parameters, where they have one. Throws UnsupportedError naming the file if forward takes or
  // gives anything else than one tensor, and for what LibTorch says.
  torch::Tensor forward(const torch::Tensor& x) const;

  // Writes the file again, with everything that it holds, but with these values (converted to the
  // dtype and shape that the module has) instead of those of its tensors of that name.
  void write(const std::string& path, const std::map<std::string, torch::Tensor>& values) const;

 private:
  std::string path_;
  std::shared_ptr<torch::jit::Module> module_;
  std::vector<ScriptTensor> tensors_;
  std::vector<ScriptLayer> layers_;
  torch::optional<torch::ScalarType> dtype_;  // that of all floating-point parameters
};

}  // namespace curvq
