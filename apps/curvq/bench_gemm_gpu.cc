#include "bench_gemm_gpu.h"

#include "bench_gemm.h"
#include "curvq/core/log.h"
#include "curvq/kernels/gpu_roofline.h"
#include "curvq/report/table.h"

namespace curvq::cli {
namespace {

std::vector<GemmShape> shapes(const Options& options) {
  std::vector<GemmShape> all = gemm_shapes(options);
  if (all.empty()) {
    for (const int64_t m : {1, 16, 64, 512, 4096}) all.push_back({m, 28672, 8192});
  }
  return all;
}

}  // namespace

int bench_gemm_gpu(const Options& options, Output& output) {
  using Align = Table::Align;
  Table table({{"kernel"},
               {"m,n,k"},
               {"GPU"},
               {"tokens a tile", Align::kRight},
               {"blocks", Align::kRight},
               {"dram us", Align::kRight},
               {"tensor us", Align::kRight},
               {"issue us", Align::kRight},
               {"integer us", Align::kRight},
               {"bound by"},
               {"over 16 bits", Align::kRight}});
  OrderedJson rows = OrderedJson::array();
  for (const Scheme& scheme : gemm_formats(options)) {
    for (const auto& [m, n, k] : shapes(options)) {
      for (const GpuRoofline& r : w4a16_rooflines(scheme, Float16Type::kBFloat16, m, n, k)) {
        const auto us = [](double seconds) { return format("%.1f", seconds * 1e6); };
        table.add_row({"w4a16 " + scheme.describe(),
                       format("%lld,%lld,%lld", static_cast<long long>(m),
                              static_cast<long long>(n), static_cast<long long>(k)),
                       r.gpu, std::to_string(r.tokens), std::to_string(r.blocks), us(r.dram),
                       us(r.tensor), us(r.issue), us(r.integer), r.bound_by,
                       format("%.2fx", r.speedup)});
        rows.push_back({{"kernel", "w4a16"},
                        {"format", scheme.name()},
                        {"m", m},
                        {"n", n},
                        {"k", k},
                        {"gpu", r.gpu},
                        {"architecture", "sm_" + r.architecture},
                        {"tokens_a_tile", r.tokens},
                        {"registers", r.registers},
                        {"blocks_a_multiprocessor", r.blocks},
                        {"dram_seconds", r.dram},
                        {"tensor_seconds", r.tensor},
                        {"issue_seconds", r.issue},
                        {"integer_seconds", r.integer},
                        {"bound_seconds", r.bound},
                        {"bound_by", r.bound_by},
                        {"speedup_over_16_bits", r.speedup}});
      }
    }
    table.add_rule();
  }
  output.results()["measured"] = false;
  output.results()["rows"] = std::move(rows);
  output.text(table.str(output.color()) +
              "bounds from machine code and data sheets, nothing measured; tensor is that of "
              "mma.sync at the\n"
              "full dense rate, of which Hopper gives it less than wgmma\n");
  return 0;
}

}  // namespace curvq::cli
