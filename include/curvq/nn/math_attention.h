// Attention that can be differentiated twice.
#pragma once

namespace curvq {

// Fused attention kernels have no second derivative ("derivative for
// aten::_scaled_dot_product_flash_attention_for_cpu_backward is not implemented"). While an object
// of this class lives, LibTorch's scaled_dot_product_attention takes the path of matrix products
// and softmax, which has; the setting of before comes back with its end. The setting is one for the
// whole process: not for use from several threads with different wishes.
class MathAttention {
 public:
  MathAttention();
  ~MathAttention();
  MathAttention(const MathAttention&) = delete;
  MathAttention& operator=(const MathAttention&) = delete;

 private:
  bool flash_, memory_efficient_, cudnn_, math_;
};

}  // namespace curvq
