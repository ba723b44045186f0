// The nets of tests/data/curvature.
#pragma once

#include <string>
#include <vector>

#include "curvq/core/parallel.h"
#include "curvq/curvature/problem.h"
#include "curvq/io/safetensors.h"
#include "curvq/nn/torch_tensor.h"

namespace curvq::testing {

// Products of matrices this small only get slower with threads, many times so on a busy machine.
inline const bool kOneThread = [] {
  set_num_threads(1);
  at::set_num_threads(1);
  return true;
}();

inline std::string golden_directory(const std::string& net) {
  return std::string(CURVQ_TEST_DATA) + "/curvature/" + net + "/";
}

inline const std::vector<std::string>& golden_nets() {
  static const std::vector<std::string> nets = {"conv_tanh_ce", "deep_linear_mse", "llama_tiny_ce",
                                                "mlp_relu_mse", "mlp_tanh_ce",     "softmax_n1"};
  return nets;
}

inline Batch golden_data(const std::string& net) {
  const SafetensorsFile file(golden_directory(net) + "data.safetensors");
  return {to_torch(file.at("x")), to_torch(file.at("y"))};
}

inline std::shared_ptr<const Loss> golden_loss(const std::string& net) {
  return net.ends_with("mse") ? mse() : cross_entropy();
}

// The TorchScript file of the net.
inline Problem golden_problem(const std::string& net, ProblemOptions options = {}) {
  return Problem(load_torchscript(golden_directory(net) + "logits.pt"), golden_loss(net),
                 golden_data(net), std::move(options));
}

// The exact answers: as stored, and whole matrices.
class Golden {
 public:
  explicit Golden(const std::string& net) : file_(golden_directory(net) + "golden.safetensors") {}

  torch::Tensor tensor(const std::string& name) const { return to_torch(file_.at(name)); }

  // "hessian" or "ggn" [P, P], out of its packed upper triangle.
  torch::Tensor matrix(const std::string& name) const {
    const torch::Tensor packed = tensor(name + "_triu");
    const int64_t n = tensor(name + "_diag").size(0);
    const torch::Tensor index = torch::triu_indices(n, n);
    torch::Tensor upper = torch::zeros({n, n}, torch::kFloat64);
    upper.index_put_({index[0], index[1]}, packed);
    return upper + upper.triu(1).t();
  }

 private:
  SafetensorsFile file_;
};

inline double relative_error(const torch::Tensor& found, const torch::Tensor& truth) {
  return ((found - truth).norm() / truth.norm()).item<double>();
}

}  // namespace curvq::testing
