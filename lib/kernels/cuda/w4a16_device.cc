#include "curvq/core/error.h"
#include "curvq/kernels/gemm_cuda.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/w4a16.h"
#include "kernels/cuda/w4a16_launch.h"

namespace curvq {

namespace cuda {

std::string launch_w4a16(W4Format format, bool f16, int token_tiles, const W4A16Args& args,
                         void* stream) {
  switch (format) {
    case W4Format::kNvfp4:
      return launch_w4a16_format<W4Format::kNvfp4>(f16, token_tiles, args, stream);
    case W4Format::kMxfp4:
      return launch_w4a16_format<W4Format::kMxfp4>(f16, token_tiles, args, stream);
    case W4Format::kInt4Group32:
      return launch_w4a16_format<W4Format::kInt4Group32>(f16, token_tiles, args, stream);
    case W4Format::kInt4Group64:
      return launch_w4a16_format<W4Format::kInt4Group64>(f16, token_tiles, args, stream);
  }
  return "unknown format";
}

}  // namespace cuda

struct CudaW4A16Weight::Impl {
  W4A16Weight shape;  // without its bytes
  int multiprocessors = 0;
  cuda::Buffer codes, meta;
  // Of split k; grow to the largest product.
  std::unique_ptr<cuda::Buffer> partial, tickets;
  int64_t partial_floats = 0, num_tickets = 0;
};

CudaW4A16Weight::CudaW4A16Weight(const W4A16Weight& weight) {
  std::string why;
  if (!cuda_available(&why)) throw UnsupportedError("cuda: " + why);
  W4A16Weight shape = weight;
  shape.codes = {};
  shape.meta = {};
  impl_.reset(new Impl{std::move(shape), cuda::multiprocessors(),
                       cuda::Buffer(weight.codes.data(), static_cast<int64_t>(weight.codes.size())),
                       cuda::Buffer(weight.meta.data(), static_cast<int64_t>(weight.meta.size())),
                       nullptr, nullptr});
}

CudaW4A16Weight::~CudaW4A16Weight() = default;

void CudaW4A16Weight::multiply(const uint16_t* x, int64_t m, int64_t ldx,
                               const float* const (&bias)[2], uint16_t* out, int64_t ldout,
                               void* stream) {
  internal::W4A16Launch launch =
      internal::plan_w4a16(impl_->shape, m, ldx, ldout, impl_->multiprocessors);
  if (m == 0 || impl_->shape.rows == 0) return;
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  if (x == nullptr || out == nullptr || !aligned(x))
    throw UsageError("w4a16: x and out must be device memory, x on 16 bytes");
  if (launch.partial_floats > impl_->partial_floats) {
    impl_->partial = std::make_unique<cuda::Buffer>(launch.partial_floats * 4);
    impl_->partial_floats = launch.partial_floats;
  }
  if (launch.tickets > impl_->num_tickets) {
    impl_->tickets = std::make_unique<cuda::Buffer>(launch.tickets * 4);
    cuda::check(cuda::fill_zero(impl_->tickets->get(), launch.tickets * 4), "clearing tickets");
    impl_->num_tickets = launch.tickets;
  }
  cuda::W4A16Args& args = launch.args;
  args.codes = static_cast<const uint8_t*>(impl_->codes.get());
  args.meta = static_cast<const uint8_t*>(impl_->meta.get());
  args.x = x;
  args.out = out;
  args.wide_stores &= aligned(out);
  args.bias[0] = bias[0];
  args.bias[1] = impl_->shape.pair ? bias[1] : bias[0];
  if (args.splits > 1) {
    args.partial = static_cast<float*>(impl_->partial->get());
    args.tickets = static_cast<uint32_t*>(impl_->tickets->get());
  }
  cuda::check(cuda::launch_w4a16(launch.format, launch.f16, launch.token_tiles, args, stream),
              "the w4a16 kernel");
}

std::string CudaW4A16Weight::kernel(int64_t m) const {
  const internal::W4A16Launch launch = internal::plan_w4a16(
      impl_->shape, m, (impl_->shape.cols + 7) / 8 * 8, impl_->shape.rows, impl_->multiprocessors);
  return "w4a16 mma.sync, " + std::to_string(8 * launch.token_tiles) + " tokens a tile, " +
         std::to_string(launch.args.splits) + (launch.args.splits == 1 ? " part" : " parts") +
         " of k: weights of 4 bits by activations of 16";
}

}  // namespace curvq
