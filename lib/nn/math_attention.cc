#include "curvq/nn/math_attention.h"

#include <ATen/Context.h>

namespace curvq {
namespace {

void use(bool flash, bool memory_efficient, bool cudnn, bool math) {
  at::Context& context = at::globalContext();
  context.setSDPUseFlash(flash);
  context.setSDPUseMemEfficient(memory_efficient);
  context.setSDPUseCuDNN(cudnn);
  context.setSDPUseMath(math);
}

}  // namespace

MathAttention::MathAttention() {
  const at::Context& context = at::globalContext();
  flash_ = context.userEnabledFlashSDP();
  memory_efficient_ = context.userEnabledMemEfficientSDP();
  cudnn_ = context.userEnabledCuDNNSDP();
  math_ = context.userEnabledMathSDP();
  use(false, false, false, true);
}

MathAttention::~MathAttention() { use(flash_, memory_efficient_, cudnn_, math_); }

}  // namespace curvq
