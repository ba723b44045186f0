#include "curvq/core/error.h"
#include "curvq/kernels/gemm_cuda.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/w4a8.h"
#include "kernels/cuda/w4a8_launch.h"

namespace curvq {

struct CudaW4A8Weight::Impl {
  W4A8Weight shape;  // without its bytes
  Float16Type type;
  cuda::Buffer codes, scales;
  // Of the rounded activations; grow to the largest product.
  std::unique_ptr<cuda::Buffer> x_codes, x_scales;
  int64_t rows = 0;
};

CudaW4A8Weight::CudaW4A8Weight(const W4A8Weight& weight, Float16Type type) {
  std::string why;
  if (!cuda_block_scaled_available(&why)) throw UnsupportedError("cuda w4a8: " + why);
  W4A8Weight shape = weight;
  shape.codes = {};
  shape.scales = {};
  impl_.reset(
      new Impl{std::move(shape), type,
               cuda::Buffer(weight.codes.data(), static_cast<int64_t>(weight.codes.size())),
               cuda::Buffer(weight.scales.data(), static_cast<int64_t>(weight.scales.size())),
               nullptr, nullptr});
}

CudaW4A8Weight::~CudaW4A8Weight() = default;

void CudaW4A8Weight::multiply(const uint16_t* x, int64_t m, int64_t ldx, const float* bias,
                              uint16_t* out, int64_t ldout, void* stream) {
  internal::W4A8Launch launch = internal::plan_w4a8(impl_->shape, m, ldx, ldout);
  if (m == 0 || impl_->shape.rows == 0) return;
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  if (x == nullptr || out == nullptr || !aligned(x))
    throw UsageError("w4a8: x and out must be device memory, x on 16 bytes");
  if (m > impl_->rows) {
    impl_->x_codes = std::make_unique<cuda::Buffer>(m * impl_->shape.chunks * cuda::kW4A8Cols);
    impl_->x_scales = std::make_unique<cuda::Buffer>(m * 4);
    impl_->rows = m;
  }
  const bool f16 = impl_->type == Float16Type::kFloat16;
  launch.quantize.x = x;
  launch.quantize.codes = static_cast<uint8_t*>(impl_->x_codes->get());
  launch.quantize.scales = static_cast<float*>(impl_->x_scales->get());
  cuda::check(cuda::launch_quantize_rows(f16, launch.quantize, stream), "rounding the activations");
  cuda::W4A8Args& args = launch.product;
  args.x = launch.quantize.codes;
  args.x_scales = launch.quantize.scales;
  args.codes = static_cast<const uint8_t*>(impl_->codes.get());
  args.scales = static_cast<const uint8_t*>(impl_->scales.get());
  args.out = out;
  args.bias = bias;
  args.wide_stores &= aligned(out);
  cuda::check(cuda::launch_w4a8(f16, args, stream), "the w4a8 kernel");
}

std::string CudaW4A8Weight::kernel() const {
  return "w4a8 mma.sync block_scale, 128 tokens a tile: MXFP4 weights and activations of E4M3 by "
         "the "
         "tensor cores of compute capability 12.x";
}

}  // namespace curvq
