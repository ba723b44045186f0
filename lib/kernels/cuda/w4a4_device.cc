#include "curvq/core/error.h"
#include "curvq/kernels/gemm_cuda.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/w4a4.h"
#include "kernels/cuda/w4a4_launch.h"

namespace curvq {

struct CudaW4A4Weight::Impl {
  W4A4Matrix shape;  // without its bytes
  Float16Type type;
  cuda::Buffer codes, scales;
  // Of the rounded activations; grow to the largest product.
  std::unique_ptr<cuda::Buffer> x_codes, x_scales;
  int64_t x_code_bytes = 0, x_scale_bytes = 0;
};

namespace {

void grow(std::unique_ptr<cuda::Buffer>& buffer, int64_t& bytes, int64_t wanted) {
  if (wanted <= bytes) return;
  buffer = std::make_unique<cuda::Buffer>(wanted);
  bytes = wanted;
}

}  // namespace

bool cuda_block_scaled_available(std::string* why) {
  std::string status = cuda::device_status();
  if (status.empty()) status = cuda::block_scaled_status();
  if (why != nullptr) *why = status;
  return status.empty();
}

CudaW4A4Weight::CudaW4A4Weight(const W4A4Matrix& weight, Float16Type type) {
  std::string why;
  if (!cuda_block_scaled_available(&why)) throw UnsupportedError("cuda w4a4: " + why);
  W4A4Matrix shape = weight;
  shape.codes = {};
  shape.scales = {};
  impl_.reset(
      new Impl{std::move(shape), type,
               cuda::Buffer(weight.codes.data(), static_cast<int64_t>(weight.codes.size())),
               cuda::Buffer(weight.scales.data(), static_cast<int64_t>(weight.scales.size())),
               nullptr, nullptr});
}

CudaW4A4Weight::~CudaW4A4Weight() = default;

void CudaW4A4Weight::multiply(const uint16_t* x, int64_t m, int64_t ldx, const float* bias,
                              uint16_t* out, int64_t ldout, void* stream) {
  internal::W4A4Launch launch = internal::plan_w4a4(impl_->shape, m, ldx, ldout);
  if (m == 0 || impl_->shape.rows == 0) return;
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  if (x == nullptr || out == nullptr || !aligned(x))
    throw UsageError("w4a4: x and out must be device memory, x on 16 bytes");
  grow(impl_->x_codes, impl_->x_code_bytes, launch.x_code_bytes);
  grow(impl_->x_scales, impl_->x_scale_bytes, launch.x_scale_bytes);
  const bool f16 = impl_->type == Float16Type::kFloat16;
  launch.quantize.x = x;
  launch.quantize.codes = static_cast<uint8_t*>(impl_->x_codes->get());
  launch.quantize.scales = static_cast<uint8_t*>(impl_->x_scales->get());
  cuda::check(cuda::launch_quantize(launch.scale, f16, launch.quantize, stream),
              "rounding the activations");
  cuda::W4A4Args& args = launch.product;
  args.x.codes = launch.quantize.codes;
  args.x.scales = launch.quantize.scales;
  args.w.codes = static_cast<const uint8_t*>(impl_->codes.get());
  args.w.scales = static_cast<const uint8_t*>(impl_->scales.get());
  args.out = out;
  args.bias = bias;
  args.wide_stores &= aligned(out);
  cuda::check(cuda::launch_w4a4(launch.scale, f16, args, stream), "the w4a4 kernel");
}

std::string CudaW4A4Weight::kernel() const {
  return "w4a4 mma.sync block_scale, 128 tokens a tile: weights and activations of 4 bits by the "
         "tensor cores of compute capability 12.x";
}

}  // namespace curvq
