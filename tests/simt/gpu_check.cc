// What a GPU day asks of the CUDA kernels: are they right, and how fast. Started by
// scripts/gpu-check, which builds it. Writes one JSON object.
//   gpu_check FILE.json           everything
//   gpu_check FILE.json --small   few small products, for compute-sanitizer
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <tuple>

#include "conformance.h"
#include "curvq/core/error.h"
#include "curvq/kernels/gemm_cuda.h"
#include "gpu_check_cases.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/w4a4.h"
#include "kernels/cuda/w4a4_launch.h"
#include "kernels/cuda/w4a8.h"
#include "kernels/cuda/w4a8_launch.h"
#include "w4a4_cases.h"
#include "w4a8_cases.h"

namespace curvq {
namespace {

void ok(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw ResourceError(std::string(what) + ": " + cudaGetErrorString(error));
}
void ok(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw ResourceError(std::string(what) + ": cublas status " + std::to_string(status));
}

template <typename T>
cuda::Buffer upload(const std::vector<T>& values) {
  return cuda::Buffer(values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
}

// Into operands->out, twice; false if the bytes differ.
bool run_on_device(Operands* operands, int64_t m) {
  CudaW4A16Weight weight(operands->weight);
  const cuda::Buffer x = upload(operands->x);
  const cuda::Buffer bias[] = {upload(operands->bias[0]), upload(operands->bias[1])};
  const float* pointers[2] = {};
  for (int i = 0; i < 2; ++i)
    if (!operands->bias[i].empty()) pointers[i] = static_cast<const float*>(bias[i].get());
  std::vector<uint16_t> results[2] = {operands->out, operands->out};
  for (std::vector<uint16_t>& result : results) {
    const cuda::Buffer out = upload(result);
    weight.multiply(static_cast<const uint16_t*>(x.get()), m, operands->ldx, pointers,
                    static_cast<uint16_t*>(out.get()), operands->ldout, nullptr);
    ok(cudaDeviceSynchronize(), "the kernel");
    cuda::check(
        cuda::copy_to_host(result.data(), out.get(), static_cast<int64_t>(result.size() * 2)),
        "copying out");
  }
  operands->out = results[0];
  return results[0] == results[1];
}

W4A4Matrix quantize_on_device(const W4A4Case& c) {
  internal::W4A4Launch launch = internal::plan_w4a4(c.weight, c.m, c.ldx, c.ldout);
  const cuda::Buffer x = upload(c.x);
  W4A4Matrix rounded = c.weight;  // for its sizes
  rounded.rows = c.m;
  rounded.divisor = c.weight.input_divisor;
  rounded.codes.assign(launch.x_code_bytes, 0x77);
  rounded.scales.assign(launch.x_scale_bytes, 0x77);
  const cuda::Buffer codes = upload(rounded.codes), scales = upload(rounded.scales);
  launch.quantize.x = static_cast<const uint16_t*>(x.get());
  launch.quantize.codes = static_cast<uint8_t*>(codes.get());
  launch.quantize.scales = static_cast<uint8_t*>(scales.get());
  cuda::check(cuda::launch_quantize(launch.scale, c.type == Float16Type::kFloat16, launch.quantize,
                                    nullptr),
              "the quantizer");
  ok(cudaDeviceSynchronize(), "the quantizer");
  cuda::check(cuda::copy_to_host(rounded.codes.data(), codes.get(), launch.x_code_bytes),
              "copying codes");
  cuda::check(cuda::copy_to_host(rounded.scales.data(), scales.get(), launch.x_scale_bytes),
              "copying scales");
  return rounded;
}

W4A8Inputs quantize_on_device(const W4A8Case& c) {
  internal::W4A8Launch launch = internal::plan_w4a8(c.weight, c.m, c.ldx, c.ldout);
  const cuda::Buffer x = upload(c.x);
  W4A8Inputs rounded{c.m, c.weight.chunks, {}, {}};
  rounded.codes.assign(c.m * c.weight.chunks * cuda::kW4A8Cols, 0x77);
  rounded.scales.assign(c.m, -1);
  const cuda::Buffer codes = upload(rounded.codes), scales = upload(rounded.scales);
  launch.quantize.x = static_cast<const uint16_t*>(x.get());
  launch.quantize.codes = static_cast<uint8_t*>(codes.get());
  launch.quantize.scales = static_cast<float*>(scales.get());
  cuda::check(cuda::launch_quantize_rows(c.type == Float16Type::kFloat16, launch.quantize, nullptr),
              "the quantizer");
  ok(cudaDeviceSynchronize(), "the quantizer");
  cuda::check(cuda::copy_to_host(rounded.codes.data(), codes.get(),
                                 static_cast<int64_t>(rounded.codes.size())),
              "copying codes");
  cuda::check(cuda::copy_to_host(rounded.scales.data(), scales.get(), c.m * 4), "copying scales");
  return rounded;
}

// Into c->out.
template <class Weight, class Case>
void multiply_on_device(Case* c) {
  Weight weight(c->weight, c->type);
  const cuda::Buffer x = upload(c->x), out = upload(c->out), bias = upload(c->bias);
  weight.multiply(static_cast<const uint16_t*>(x.get()), c->m, c->ldx,
                  c->bias.empty() ? nullptr : static_cast<const float*>(bias.get()),
                  static_cast<uint16_t*>(out.get()), c->ldout, nullptr);
  ok(cudaDeviceSynchronize(), "the product");
  cuda::check(cuda::copy_to_host(c->out.data(), out.get(), static_cast<int64_t>(c->out.size() * 2)),
              "copying out");
}

// Median seconds of one call, of `rounds` after a warm-up.
double time_of(const std::function<void(int)>& call, int rounds) {
  cudaEvent_t begin, end;
  ok(cudaEventCreate(&begin), "events");
  ok(cudaEventCreate(&end), "events");
  std::vector<double> seconds;
  for (int i = -3; i < rounds; ++i) {
    ok(cudaEventRecord(begin), "events");
    call(i + 3);
    ok(cudaEventRecord(end), "events");
    ok(cudaEventSynchronize(end), "a timed call");
    float milliseconds = 0;
    ok(cudaEventElapsedTime(&milliseconds, begin, end), "events");
    if (i >= 0) seconds.push_back(milliseconds * 1e-3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
  return seconds[rounds / 2];
}

// Bytes a second of a copy, read and written together.
double copy_bandwidth() {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const cuda::Buffer from(kBytes), to(kBytes);
  ok(cudaMemset(from.get(), 1, kBytes), "clearing");
  const double seconds = time_of(
      [&](int) {
        ok(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice), "copy");
      },
      11);
  return 2.0 * kBytes / seconds;
}

class Check {
 public:
  Check() {
    ok(cudaGetDeviceProperties(&device_, 0), "device properties");
    json_ << "{\n  \"device\": \"" << device_.name << "\",\n  \"capability\": \"" << device_.major
          << "." << device_.minor << "\",\n  \"multiprocessors\": " << device_.multiProcessorCount;
  }

  void conformance(const std::string& golden) {
    const std::vector<uint32_t> in = simt::conformance_input();
    const std::vector<uint32_t> emulated = simt::run_conformance_emulated(in);
    std::vector<uint32_t> device;
    const bool block_scaled = cuda_block_scaled_available();
    cuda::check(simt::run_conformance_device(in, block_scaled, &device), "the conformance kernel");
    for (size_t i = 0; !block_scaled && i < device.size(); ++i)
      if (static_cast<int>(i % simt::kConformanceOut) >= simt::kBlockScaledFirst)
        device[i] = emulated[i];
    std::ofstream(golden, std::ios::binary)
        .write(reinterpret_cast<const char*>(device.data()),
               static_cast<std::streamsize>(device.size() * 4));
    const ConformanceDifference difference = compare_conformance(emulated, device);
    std::printf("conformance: %s\n", difference.text.c_str());
    json_ << ",\n  \"conformance\": {\"different\": " << difference.words
          << ", \"block_scaled\": " << (block_scaled ? "true" : "false") << "}";
    failures_ += difference.words;
  }

  void correctness(bool small) {
    json_ << ",\n  \"checks\": [";
    const char* separator = "\n    ";
    for (const CheckCase& c : check_cases(small)) {
      Operands operands = make_operands(c.kind.scheme, c.type, c.product);
      const bool repeats = run_on_device(&operands, c.product.m);
      const Comparison comparison = compare(operands, c.product.m);
      const std::string problem = problem_of(c, comparison, repeats);
      if (!problem.empty()) {
        ++failures_;
        std::printf("WRONG %s: %s\n", c.name().c_str(), problem.c_str());
      }
      json_ << separator << "{\"case\": \"" << c.name() << "\", \"worst_over_bound\": "
            << (std::isfinite(comparison.worst) ? comparison.worst : 1e30)
            << ", \"differing\": " << comparison.differing
            << ", \"right\": " << (problem.empty() ? "true" : "false") << "}";
      separator = ",\n    ";
      ++checks_;
    }
    json_ << "\n  ]";
    std::printf("%d products checked, %d failures so far\n", checks_, failures_);
  }

  // The quantizers of activations on any device, products by block-scaled tensor cores where it has
  // them.
  void block_scaled() {
    std::string why;
    const bool products = cuda_block_scaled_available(&why);
    if (!products) std::printf("w4a4, w4a8: products NOT RUN: %s\n", why.c_str());
    json_ << ",\n  \"block_scaled\": {\"products\": \"" << (products ? "run" : why)
          << "\", \"checks\": [";
    const char* separator = "\n    ";
    const auto check = [&](auto c, const auto& multiply) {
      const auto x = quantize_on_device(c);
      std::string problem = quantizer_problem(c, x);
      if (problem.empty() && products) {
        multiply(&c);
        problem = product_problem(c, x);
      }
      if (!problem.empty()) {
        ++failures_;
        std::printf("WRONG %s: %s\n", c.name().c_str(), problem.c_str());
      }
      json_ << separator << "{\"case\": \"" << c.name()
            << "\", \"right\": " << (problem.empty() ? "true" : "false") << "}";
      separator = ",\n    ";
      ++checks_;
    };
    for (const auto& [m, n, k, exact] :
         {std::tuple{1, 40, 96, false}, {300, 130, 1056, false}, {257, 256, 512, true}}) {
      for (const W4A4Kind& kind : w4a4_kinds())
        check(make_w4a4_case(kind, m, n, k, exact, checks_),
              multiply_on_device<CudaW4A4Weight, W4A4Case>);
      for (const auto type : {Float16Type::kBFloat16, Float16Type::kFloat16})
        check(make_w4a8_case(type, m, n, k, exact, checks_),
              multiply_on_device<CudaW4A8Weight, W4A8Case>);
    }
    json_ << "\n  ]}";
    std::printf("%d checks, %d failures so far\n", checks_, failures_);
  }

  void timing(double seconds_left) {
    const auto start = std::chrono::steady_clock::now();
    const double bandwidth = copy_bandwidth();
    std::printf("copies: %.2f TB/s\n", bandwidth * 1e-12);
    json_ << ",\n  \"copy_bytes_per_second\": " << bandwidth << ",\n  \"timings\": [";
    const char* separator = "\n    ";
    constexpr int64_t kN = 28672, kK = 8192;
    cublasHandle_t blas;
    ok(cublasCreate(&blas), "cublas");
    const cuda::Buffer dense(kN * kK * 2);
    ok(cudaMemset(dense.get(), 0x3c, kN * kK * 2), "clearing");
    for (const int64_t m : {1, 4, 8, 16, 32, 64, 128, 512, 2048, 4096}) {
      const cuda::Buffer x(m * kK * 2), out(m * kN * 2);
      ok(cudaMemset(x.get(), 0x3c, m * kK * 2), "clearing");
      const int rounds = m >= 512 ? 11 : 31;
      const float one = 1, zero = 0;
      const double wide = time_of(
          [&](int) {
            ok(cublasGemmEx(blas, CUBLAS_OP_T, CUBLAS_OP_N, kN, static_cast<int>(m), kK, &one,
                            dense.get(), CUDA_R_16BF, kK, x.get(), CUDA_R_16BF, kK, &zero,
                            out.get(), CUDA_R_16BF, kN, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
               "cublasGemmEx");
          },
          rounds);
      for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(128)}) {
        if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() >
            seconds_left) {
          json_ << separator << "{\"stopped\": \"out of time\"}";
          break;
        }
        // The weight is larger than the second-level cache, so that each call reads it anew.
        CudaW4A16Weight weight(repeated_weight(scheme, Float16Type::kBFloat16, kN, kK));
        const double seconds = time_of(
            [&](int) {
              weight.multiply(static_cast<const uint16_t*>(x.get()), m, kK, {nullptr, nullptr},
                              static_cast<uint16_t*>(out.get()), kN, nullptr);
            },
            rounds);
        const double bytes = static_cast<double>(scheme.stored_bytes(kN, kK));
        // At the least: reading the weight, writing it with 16 bits, and the product.
        const double dequantized = wide + (bytes + 2.0 * kN * kK) / bandwidth;
        std::printf(
            "%-28s m %5lld: %8.1f us, %5.2f of copies, %5.2fx cublas bf16, %7.1f TFLOP/s  %s\n",
            scheme.describe().c_str(), static_cast<long long>(m), seconds * 1e6,
            bytes / seconds / bandwidth, wide / seconds,
            2e-12 * static_cast<double>(m) * kN * kK / seconds, weight.kernel(m).c_str());
        json_ << separator << "{\"format\": \"" << scheme.describe() << "\", \"m\": " << m
              << ", \"n\": " << kN << ", \"k\": " << kK << ", \"seconds\": " << seconds
              << ", \"cublas_bf16_seconds\": " << wide
              << ", \"dequantize_then_cublas_at_least\": " << dequantized
              << ", \"weight_bytes_per_second\": " << bytes / seconds << ", \"kernel\": \""
              << weight.kernel(m) << "\"}";
        separator = ",\n    ";
      }
    }
    cublasDestroy(blas);
    json_ << "\n  ]";
  }

  // 0 if all is right.
  int finish(const std::string& path) {
    json_ << ",\n  \"failures\": " << failures_ << "\n}\n";
    std::ofstream file(path);
    file << json_.str();
    file.close();
    if (!file) throw ResourceError(path + ": cannot be written");
    return failures_ == 0 ? 0 : 6;
  }

 private:
  cudaDeviceProp device_{};
  std::ostringstream json_;
  int checks_ = 0, failures_ = 0;
};

int run(const std::string& path, bool small) {
  std::string why;
  if (!cuda_available(&why)) throw UnsupportedError("gpu_check: " + why);
  Check check;
  check.conformance(path + ".golden");
  check.correctness(small);
  check.block_scaled();
  if (!small) check.timing(180);
  return check.finish(path);
}

}  // namespace
}  // namespace curvq

int main(int argc, char** argv) {
  const bool small = argc == 3 && std::strcmp(argv[2], "--small") == 0;
  if (argc < 2 || (argc == 3 && !small) || argc > 3) {
    std::fprintf(stderr, "usage: gpu_check FILE.json [--small]\n");
    return 2;
  }
  try {
    return curvq::run(argv[1], small);
  } catch (const curvq::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
