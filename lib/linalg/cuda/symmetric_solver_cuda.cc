#include "curvq/linalg/symmetric_solver_cuda.h"

#include <cuda_runtime_api.h>
#include <cusolverDn.h>

#include <type_traits>
#include <vector>

#include "curvq/core/error.h"
#include "linalg/symmetric_solvers.h"

namespace curvq {
namespace {

// cuSOLVER is column-major: its upper triangle is our lower one.
constexpr cublasFillMode_t kUpper = CUBLAS_FILL_MODE_UPPER;

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw ResourceError(std::string("cuda: ") + what + ": " + cudaGetErrorString(status));
}

void check(cusolverStatus_t status, const char* what) {
  if (status != CUSOLVER_STATUS_SUCCESS)
    throw ResourceError(std::string("cusolver: ") + what + " failed with status " +
                        std::to_string(static_cast<int>(status)));
}

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) {
    if (bytes > 0) check(cudaMalloc(&data_, bytes), "allocating device memory");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  template <typename T = void>
  T* get() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

template <typename T>
constexpr cudaDataType kType = std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_64F;

class CudaSolver : public SymmetricSolver {
 public:
  CudaSolver() {
    std::string why;
    if (!cusolver_available(&why)) throw ResourceError("cusolver: no device: " + why);
    check(cusolverDnCreate(&handle_), "creating a handle");
    if (const cusolverStatus_t status = cusolverDnCreateParams(&parameters_);
        status != CUSOLVER_STATUS_SUCCESS) {
      cusolverDnDestroy(handle_);
      check(status, "creating parameters");
    }
  }
  ~CudaSolver() override {
    cusolverDnDestroyParams(parameters_);
    cusolverDnDestroy(handle_);
  }
  CudaSolver(const CudaSolver&) = delete;
  CudaSolver& operator=(const CudaSolver&) = delete;

  std::string name() const override { return "cusolver"; }
  bool cholesky(int64_t n, float* a) override { return cholesky_of(n, a); }
  bool cholesky(int64_t n, double* a) override { return cholesky_of(n, a); }
  bool inverse(int64_t n, float* a) override { return inverse_of(n, a); }
  bool inverse(int64_t n, double* a) override { return inverse_of(n, a); }
  void eigen(int64_t n, float* a, float* values) override { eigen_of(n, a, values); }
  void eigen(int64_t n, double* a, double* values) override { eigen_of(n, a, values); }

 private:
  // Where a routine leaves its answer: 0 is success.
  struct Info {
    DeviceMemory memory{sizeof(int)};
    int* device() const { return memory.get<int>(); }
    int value() const {
      int info = 0;
      check(cudaMemcpy(&info, device(), sizeof info, cudaMemcpyDeviceToHost), "reading the status");
      return info;
    }
  };

  template <typename T>
  static void upload(int64_t n, const T* a, const DeviceMemory& to) {
    check(cudaMemcpy(to.get(), a, n * n * sizeof(T), cudaMemcpyHostToDevice), "copying a matrix");
  }
  template <typename T>
  static void download(int64_t count, const DeviceMemory& from, T* a) {
    check(cudaMemcpy(a, from.get(), count * sizeof(T), cudaMemcpyDeviceToHost), "copying a matrix");
  }

  template <typename T>
  bool factorise(int64_t n, const DeviceMemory& matrix) {
    size_t device_bytes = 0, host_bytes = 0;
    check(cusolverDnXpotrf_bufferSize(handle_, parameters_, kUpper, n, kType<T>, matrix.get(), n,
                                      kType<T>, &device_bytes, &host_bytes),
          "sizing potrf");
    const DeviceMemory device(device_bytes);
    std::vector<std::byte> host(host_bytes);
    const Info info;
    check(cusolverDnXpotrf(handle_, parameters_, kUpper, n, kType<T>, matrix.get(), n, kType<T>,
                           device.get(), device_bytes, host.data(), host_bytes, info.device()),
          "potrf");
    return info.value() == 0;
  }

  template <typename T>
  bool cholesky_of(int64_t n, T* a) {
    const DeviceMemory matrix(n * n * sizeof(T));
    upload(n, a, matrix);
    const bool positive = factorise<T>(n, matrix);
    download(n * n, matrix, a);
    zero_upper_triangle(n, a);
    return positive;
  }

  template <typename T>
  bool inverse_of(int64_t n, T* a) {
    const DeviceMemory matrix(n * n * sizeof(T));
    upload(n, a, matrix);
    if (!factorise<T>(n, matrix)) return false;
    const int size = static_cast<int>(n);
    int entries = 0;
    const Info info;
    T* data = matrix.get<T>();
    if constexpr (std::is_same_v<T, float>) {
      check(cusolverDnSpotri_bufferSize(handle_, kUpper, size, data, size, &entries),
            "sizing potri");
      const DeviceMemory work(entries * sizeof(T));
      check(cusolverDnSpotri(handle_, kUpper, size, data, size, work.get<T>(), entries,
                             info.device()),
            "potri");
    } else {
      check(cusolverDnDpotri_bufferSize(handle_, kUpper, size, data, size, &entries),
            "sizing potri");
      const DeviceMemory work(entries * sizeof(T));
      check(cusolverDnDpotri(handle_, kUpper, size, data, size, work.get<T>(), entries,
                             info.device()),
            "potri");
    }
    if (info.value() != 0) return false;
    download(n * n, matrix, a);
    mirror_lower_triangle(n, a);
    return true;
  }

  template <typename T>
  void eigen_of(int64_t n, T* a, T* values) {
    const DeviceMemory matrix(n * n * sizeof(T)), lambda(n * sizeof(T));
    upload(n, a, matrix);
    size_t device_bytes = 0, host_bytes = 0;
    check(cusolverDnXsyevd_bufferSize(handle_, parameters_, CUSOLVER_EIG_MODE_VECTOR, kUpper, n,
                                      kType<T>, matrix.get(), n, kType<T>, lambda.get(), kType<T>,
                                      &device_bytes, &host_bytes),
          "sizing syevd");
    const DeviceMemory device(device_bytes);
    std::vector<std::byte> host(host_bytes);
    const Info info;
    check(cusolverDnXsyevd(handle_, parameters_, CUSOLVER_EIG_MODE_VECTOR, kUpper, n, kType<T>,
                           matrix.get(), n, kType<T>, lambda.get(), kType<T>, device.get(),
                           device_bytes, host.data(), host_bytes, info.device()),
          "syevd");
    if (info.value() != 0)
      throw NumericalError("cusolver: the eigenvalues of a matrix of " + std::to_string(n) +
                           " rows did not converge; check that its entries are finite");
    download(n * n, matrix, a);
    download(n, lambda, values);
  }

  cusolverDnHandle_t handle_ = nullptr;
  cusolverDnParams_t parameters_ = nullptr;
};

}  // namespace

bool cusolver_available(std::string* why) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return true;
  if (why) *why = status == cudaSuccess ? "none is visible" : cudaGetErrorString(status);
  return false;
}

std::unique_ptr<SymmetricSolver> make_cuda_symmetric_solver() {
  return std::make_unique<CudaSolver>();
}

}  // namespace curvq
