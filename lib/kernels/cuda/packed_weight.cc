#include <vector>

#include "curvq/core/error.h"
#include "curvq/kernels/gemm_cuda.h"
#include "kernels/cuda/device_buffer.h"

namespace curvq {
namespace {

using cuda::Buffer;
using cuda::check;

template <typename T>
std::unique_ptr<Buffer> upload(const std::vector<T>& values) {
  return std::make_unique<Buffer>(values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
}

cuda::Element element_of(const Scheme& scheme) {
  switch (scheme.element) {
    case ElementType::kE2M1:
      return cuda::kE2M1;
    case ElementType::kE4M3:
      return cuda::kE4M3;
    case ElementType::kInt:
      return cuda::kInt;
  }
  throw std::logic_error("element type");
}

}  // namespace

bool cuda_available(std::string* why) {
  const std::string status = cuda::device_status();
  if (why != nullptr) *why = status;
  return status.empty();
}

struct CudaPackedWeight::Impl {
  std::unique_ptr<Buffer> codes, scales, zero_points;
  cuda::PackedView view;
};

CudaPackedWeight::CudaPackedWeight(const QuantizedMatrix& weight)
    : impl_(std::make_unique<Impl>()) {
  std::string why;
  if (!cuda_available(&why)) throw UnsupportedError("cuda: " + why);
  const ScaleGrid& grid = weight.grid;
  impl_->codes = upload(weight.codes);
  impl_->scales = upload(grid.scales);
  if (!grid.zero_points.empty()) impl_->zero_points = upload(grid.zero_points);
  impl_->view = {
      static_cast<const uint8_t*>(impl_->codes->get()),
      static_cast<const float*>(impl_->scales->get()),
      impl_->zero_points ? static_cast<const int8_t*>(impl_->zero_points->get()) : nullptr,
      grid.rows,
      grid.cols,
      weight.row_bytes,
      grid.groups,
      grid.scheme.group_size,
      element_of(grid.scheme),
      grid.scheme.bits};
}

CudaPackedWeight::~CudaPackedWeight() = default;

void CudaPackedWeight::multiply(const float* x, int64_t m, float* out) const {
  if (m < 0 || (m > 0 && (x == nullptr || out == nullptr)))
    throw UsageError("cuda gemm: negative m or a null pointer");
  const int64_t out_bytes = m * impl_->view.rows * static_cast<int64_t>(sizeof(float));
  const Buffer device_x(x, m * impl_->view.cols * static_cast<int64_t>(sizeof(float)));
  const Buffer device_out(out_bytes);
  check(cuda::gemm(impl_->view, static_cast<const float*>(device_x.get()), m,
                   static_cast<float*>(device_out.get())),
        "the kernel");
  check(cuda::copy_to_host(out, device_out.get(), out_bytes), "copying from the device");
}

}  // namespace curvq
