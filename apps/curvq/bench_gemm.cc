#include "bench_gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/io/atomic_output.h"
#include "curvq/kernels/gemm_bench.h"
#include "curvq/report/chart.h"
#include "curvq/report/page.h"
#include "curvq/report/table.h"

namespace curvq::cli {
namespace {

GemmShape parse_shape(const Options& options, const std::string& text) {
  GemmShape shape;
  long long m = 0, n = 0, k = 0;
  int end = 0;
  if (std::sscanf(text.c_str(), "%lld,%lld,%lld%n", &m, &n, &k, &end) != 3 ||
      end != static_cast<int>(text.size()) || m < 1 || n < 1 || k < 1) {
    throw UsageError(options.where("shapes") + " '" + text +
                     "' is not M,N,K of whole numbers from 1 on");
  }
  shape.m = m, shape.n = n, shape.k = k;
  return shape;
}

// The roof, and points of the kernels under it.
std::string roofline(const GemmBench& bench, const std::string& inputs, double peak_ops,
                     const std::vector<std::string>& kernels) {
  const double peak = peak_ops / 1e9;
  const auto log2_of = [](double v) { return std::log2(v); };
  double low = 1, high = 2;
  std::map<std::string, Line> lines;
  for (const GemmBenchRow& row : bench.rows) {
    if (std::find(kernels.begin(), kernels.end(), row.kernel) == kernels.end()) continue;
    Line& line = lines[row.kernel + " " + row.format];
    line.label = row.kernel + " " + row.format;
    line.x.push_back(log2_of(row.intensity)), line.y.push_back(row.gflops());
    low = std::min(low, line.x.back()), high = std::max(high, line.x.back());
  }
  Line roof{"limit", {}, {}, {}};
  constexpr int kPoints = 65;
  for (int i = 0; i < kPoints; ++i) {
    const double x = low + (high - low) * i / (kPoints - 1);
    roof.x.push_back(x);
    roof.y.push_back(std::min(peak, bench.limits.read_bytes / 1e9 * std::exp2(x)));
  }
  LineChart chart{"Roofline, " + inputs + " inputs",
                  "log2 of operations a byte of weight",
                  "10^9 operations a second",
                  true,
                  {roof}};
  for (auto& [name, line] : lines) chart.lines.push_back(std::move(line));
  return chart.svg();
}

// "read 12.3 GB/s", ... of a machine.
std::vector<std::pair<std::string, std::string>> limit_facts(const MachineLimits& limits) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"read", format("%.1f GB/s", limits.read_bytes / 1e9)},
      {"float32", format("%.1f GFLOP/s", limits.float_ops / 1e9)},
      {"8-bit integers", format("%.1f Gop/s", limits.byte_ops / 1e9)}};
  if (limits.bf16_ops > 0)
    facts.emplace_back("bfloat16", format("%.1f GFLOP/s", limits.bf16_ops / 1e9));
  return facts;
}

void write_report(const GemmBench& bench, const std::string& path) {
  HtmlPage page("Products with packed weights");
  page.add_facts({{"instructions", linear_path()}, {"threads", std::to_string(num_threads())}});
  page.add_facts(limit_facts(bench.limits));
  const MachineLimits& limits = bench.limits;
  const bool matrix = limits.bf16_ops > 0;
  page.add_chart(roofline(
      bench, "float32", limits.float_ops,
      matrix ? std::vector<std::string>{"exact"} : std::vector<std::string>{"exact", "bf16"}));
  if (matrix) page.add_chart(roofline(bench, "bfloat16", limits.bf16_ops, {"bf16"}));
  page.add_chart(roofline(bench, "integer", limits.byte_ops, {"a15", "a8"}));
  BarChart ratios{"Share of the limit", "time by the limits over time taken", {}};
  for (const GemmBenchRow& row : bench.rows) {
    ratios.bars.push_back(
        {format("%s %s %lldx%lldx%lld", row.kernel.c_str(), row.format.c_str(),
                (long long)row.shape.m, (long long)row.shape.n, (long long)row.shape.k),
         row.limit_ratio()});
  }
  page.add_chart(ratios.svg());
  write_file(path, page.str());
}

OrderedJson to_json(const GemmBenchRow& row) {
  return {{"kernel", row.kernel},
          {"format", row.format},
          {"m", row.shape.m},
          {"n", row.shape.n},
          {"k", row.shape.k},
          {"seconds", row.seconds},
          {"gflops", row.gflops()},
          {"weight_gbps", row.weight_gbps()},
          {"limit_ratio", row.limit_ratio()},
          {"max_error", row.max_error},
          {"intensity", row.intensity},
          {"weight_bytes", row.weight_bytes},
          {"prepack_seconds", row.prepack_seconds}};
}

}  // namespace

OrderedJson limits_json(const MachineLimits& limits) {
  return {{"read_gbps", limits.read_bytes / 1e9},
          {"float_gflops", limits.float_ops / 1e9},
          {"byte_gops", limits.byte_ops / 1e9},
          {"bf16_gflops", limits.bf16_ops / 1e9}};
}

void declare_bench_gemm(Options& options) {
  options
      .add_list("shapes", "M,N,K",
                "gemm: rows, outputs and inputs; repeatable (default: M of 1, 16 "
                "and 128 with 4096,4096)")
      .add_text("formats", "A,B", "gemm: formats of the weights", "nvfp4,mxfp4,int4")
      .add_text("report", "FILE", "gemm: write a page (.html) with the rooflines");
}

std::vector<GemmShape> gemm_shapes(const Options& options) {
  std::vector<GemmShape> shapes;
  for (const std::string& text : options.list("shapes"))
    shapes.push_back(parse_shape(options, text));
  return shapes;
}

std::vector<Scheme> gemm_formats(const Options& options) {
  const std::string text = options.text("formats");
  std::vector<Scheme> schemes;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    schemes.push_back(Scheme::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return schemes;
}

int run_bench_gemm(const Options& options, Output& output) {
  if (!options.positional("MODEL").empty() || options.given("data"))
    throw UsageError("bench gemm takes neither MODEL nor --data: its weights are random");
  GemmBenchOptions wanted;
  if (options.given("shapes")) wanted.shapes = gemm_shapes(options);
  wanted.schemes = gemm_formats(options);
  if (options.given("rounds")) wanted.rounds = static_cast<int>(options.integer("rounds"));
  const GemmBench bench = bench_gemm(wanted);

  OrderedJson& results = output.results();
  results["path"] = linear_path();
  results["threads"] = num_threads();
  results["limits"] = limits_json(bench.limits);
  OrderedJson rows = OrderedJson::array();
  using Align = Table::Align;
  Table table({{"inputs", Align::kLeft},
               {"weights", Align::kLeft},
               {"M", Align::kRight},
               {"N", Align::kRight},
               {"K", Align::kRight},
               {"ms", Align::kRight},
               {"GFLOP/s", Align::kRight},
               {"GB/s", Align::kRight},
               {"of limit", Align::kRight},
               {"max error", Align::kRight}});
  for (const GemmBenchRow& row : bench.rows) {
    rows.push_back(to_json(row));
    table.add_row({row.kernel, row.format, std::to_string(row.shape.m), std::to_string(row.shape.n),
                   std::to_string(row.shape.k), format("%.4g", 1e3 * row.seconds),
                   format("%.1f", row.gflops()), format("%.2f", row.weight_gbps()),
                   format("%.0f %%", 100 * row.limit_ratio()), format("%.1e", row.max_error)});
  }
  results["rows"] = std::move(rows);
  if (options.given("report")) write_report(bench, options.text("report"));
  std::string limits;
  for (const auto& [name, rate] : limit_facts(bench.limits))
    limits += (limits.empty() ? "" : ", ") + name + " " + rate;
  output.text(table.str(output.color()) + format("%s, %d threads, processor time; limits: %s\n",
                                                 linear_path(), num_threads(), limits.c_str()));
  return 0;
}

}  // namespace curvq::cli
