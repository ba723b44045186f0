#include "digits.h"

#include <torch/torch.h>

// digits.bin: the six parameters in float32, then the images (8 x 8 pixels of 0 to 16) and their
// labels, a byte each. The images are the optical recognition data set of E. Alpaydin and C. Kaynak
// (UCI Machine Learning Repository, CC BY 4.0) as scikit-learn distributes it.
asm(".section .rodata\n"
    ".balign 16\n"
    "curvq_digits: .incbin \"" CURVQ_DIGITS_FILE
    "\"\n"
    ".section .text\n");
extern "C" const unsigned char curvq_digits[];

namespace curvq::cli {
namespace {

constexpr int64_t kSamples = 1437, kPixels = 64;

}  // namespace

Problem digits_problem() {
  const unsigned char* next = curvq_digits;
  const auto take = [&](const std::vector<int64_t>& shape, torch::ScalarType dtype) {
    // from_blob wants a pointer that is not const; clone() only reads from it.
    const torch::Tensor view =
        torch::from_blob(const_cast<unsigned char*>(next), shape, torch::dtype(dtype));
    next += view.nbytes();
    return view.clone();
  };
  Model model{"the digits MLP", {}, nullptr};
  std::vector<torch::Tensor> p;
  const std::vector<int64_t> widths = {kPixels, 64, 32, 10};
  for (size_t layer = 1; layer < widths.size(); ++layer) {
    const std::string name = "fc" + std::to_string(layer);
    p.push_back(take({widths[layer], widths[layer - 1]}, torch::kFloat32).requires_grad_());
    model.parameters.push_back({name + ".weight", p.back()});
    p.push_back(take({widths[layer]}, torch::kFloat32).requires_grad_());
    model.parameters.push_back({name + ".bias", p.back()});
  }
  model.forward = [p](const Batch& batch) {
    torch::Tensor x = torch::tanh(torch::linear(batch.inputs, p[0], p[1]));
    x = torch::tanh(torch::linear(x, p[2], p[3]));
    return torch::linear(x, p[4], p[5]);
  };
  const torch::Tensor images = take({kSamples, kPixels}, torch::kUInt8).to(torch::kFloat32) / 16;
  const torch::Tensor labels = take({kSamples}, torch::kUInt8).to(torch::kInt64);
  return Problem(std::move(model), cross_entropy(), {images, labels});
}

}  // namespace curvq::cli
