// Errors on real layer problems against those that llm-compressor reached (tests/data/layers).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "curvq/compress/quantize.h"
#include "curvq/io/json.h"

namespace curvq {
namespace {

struct Case {
  const char* peer;  // rtn-nvfp4, gptq-static-int4-g64, ...
  Scheme scheme;
  Method method;
  ActOrder order;
  double tolerance;  // relative
};

class GoldenLayers : public testing::TestWithParam<Case> {};

TEST_P(GoldenLayers, ErrorEqualsThePeers) {
  const Case& c = GetParam();
  const std::string data = std::string(CURVQ_TEST_DATA) + "/layers/";
  const std::string out =
      testing::TempDir() + "golden_layers_" + std::to_string(getpid()) + ".safetensors";
  QuantizeOptions options;
  options.out = out;
  options.overwrite = true;
  options.method = c.method;
  options.gptq.act_order = c.order;
  options.plan.scheme = c.scheme;
  const QuantizeReport report =
      quantize_tensors(data + "weights.safetensors", data + "stats.safetensors", options,
                       [](const QuantizeReport&) { return std::string("{}"); });
  std::filesystem::remove(out);
  const Json peers = read_json_file(data + "peer-errors.json");
  ASSERT_EQ(report.layers.size(), peers.size());
  for (const LayerResult& layer : report.layers) {
    const double peer = peers.at(layer.name).at(c.peer).get<double>();
    EXPECT_NEAR(layer.relative_error / peer, 1.0, c.tolerance) << layer.name;
  }
}

// The bounds are 0.1 % for NVFP4 and MXFP4 and 10 % for INT4, whose largest weights lie on
// ties. Round to nearest leaves only the sums: 1e-6.
INSTANTIATE_TEST_SUITE_P(
    Peers, GoldenLayers,
    testing::Values(
        Case{"rtn-nvfp4", Scheme::nvfp4(), Method::kRtn, ActOrder::kNone, 1e-6},
        Case{"rtn-mxfp4", Scheme::mxfp4(), Method::kRtn, ActOrder::kNone, 1e-6},
        Case{"rtn-int4-g64", Scheme::int4(64), Method::kRtn, ActOrder::kNone, 1e-6},
        Case{"gptq-none-nvfp4", Scheme::nvfp4(), Method::kGptq, ActOrder::kNone, 1e-3},
        Case{"gptq-static-nvfp4", Scheme::nvfp4(), Method::kGptq, ActOrder::kStatic, 1e-3},
        Case{"gptq-none-mxfp4", Scheme::mxfp4(), Method::kGptq, ActOrder::kNone, 1e-3},
        Case{"gptq-static-mxfp4", Scheme::mxfp4(), Method::kGptq, ActOrder::kStatic, 1e-3},
        Case{"gptq-static-int4-g64", Scheme::int4(64), Method::kGptq, ActOrder::kStatic, 0.1},
        Case{"gptq-static-int4-g32", Scheme::int4(32), Method::kGptq, ActOrder::kStatic, 0.1}),
    [](const testing::TestParamInfo<Case>& info) {
      std::string name = info.param.peer;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace curvq
