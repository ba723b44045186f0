#include "curvq/kernels/gpu_roofline.h"

#include <algorithm>
#include <array>

#include "curvq/core/error.h"
#include "kernels/cuda/w4a16_figures.h"

namespace curvq {
namespace {

// Leads of the data sheets: dense 16-bit operations with float32 sums, and what the programming
// guide says of a multiprocessor.
struct Gpu {
  const char* name;
  const char* architecture;
  int multiprocessors;
  double clock, dram_bytes, operations;  // a second
  int shared_bytes, threads;             // of a multiprocessor
};
constexpr Gpu kGpus[] = {
    {"A100 80GB", "80", 108, 1.41e9, 2.04e12, 312e12, 164 << 10, 2048},
    {"H200", "90a", 132, 1.755e9, 4.8e12, 989e12, 228 << 10, 2048},
    {"B200", "100f", 148, 1.85e9, 8.0e12, 2250e12, 228 << 10, 2048},
    {"RTX 5090", "120f", 170, 2.407e9, 1.792e12, 209.5e12, 100 << 10, 1536},
};
constexpr int kSchedulers = 4;

// Registers go out to warps in units of 256, shared memory to blocks in units of 128 bytes after
// the 1 KB that the system takes.
int blocks_at_once(const Gpu& gpu, int registers, int shared_bytes) {
  constexpr int kRegisters = 65536, kWarps = 4;
  const int warp_registers = (registers * 32 + 255) / 256 * 256;
  const int by_registers = kRegisters / kSchedulers / warp_registers * kSchedulers / kWarps;
  const int by_shared = gpu.shared_bytes / ((shared_bytes + 1024 + 127) / 128 * 128);
  return std::min({by_registers, by_shared, gpu.threads / cuda::kThreads, 32});
}

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

std::vector<GpuRoofline> w4a16_rooflines(const Scheme& scheme, Float16Type type, int64_t m,
                                         int64_t n, int64_t k) {
  if (m < 1 || n < 1 || k < 1) throw UsageError("roofline: sizes must be positive");
  const cuda::W4Format format = internal::w4_format(scheme);
  const bool f16 = type == Float16Type::kFloat16;
  const int tokens = 8 * cuda::token_tiles_for(format, f16, m);
  const double padded = static_cast<double>(round_up(m, tokens)) *
                        static_cast<double>(round_up(n, 128)) *
                        static_cast<double>(round_up(k, 128));
  const double warp_chunks = padded / tokens / (cuda::kChunkRows * cuda::kChunkCols);
  const double io_bytes = 2.0 * static_cast<double>(m) * static_cast<double>(n + k);
  const double operations =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  std::vector<GpuRoofline> all;
  for (const Gpu& gpu : kGpus) {
    const cuda::W4A16Figure& figure = cuda::w4a16_figure(format, f16, tokens, gpu.architecture);
    GpuRoofline r;
    r.gpu = gpu.name;
    r.architecture = gpu.architecture;
    r.tokens = tokens;
    r.registers = figure.registers;
    r.blocks = blocks_at_once(gpu, figure.registers, cuda::w4a16_shared_bytes(format, f16, tokens));
    r.dram = (static_cast<double>(scheme.stored_bytes(n, k)) + io_bytes) / gpu.dram_bytes;
    r.tensor = 2 * padded / gpu.operations;
    const double slots = gpu.multiprocessors * kSchedulers * gpu.clock;
    r.issue = warp_chunks * figure.instructions / figure.chunks / slots;
    r.integer = warp_chunks * 2 * figure.integer / figure.chunks / slots;
    const std::array<std::pair<double, const char*>, 4> bounds = {
        {{r.dram, "dram"}, {r.tensor, "tensor"}, {r.issue, "issue"}, {r.integer, "integer"}}};
    const auto largest = std::max_element(bounds.begin(), bounds.end());
    r.bound = largest->first;
    r.bound_by = largest->second;
    const double wide = std::max(
        (2.0 * static_cast<double>(n) * static_cast<double>(k) + io_bytes) / gpu.dram_bytes,
        operations / gpu.operations);
    r.speedup = wide / r.bound;
    all.push_back(r);
  }
  return all;
}

}  // namespace curvq
