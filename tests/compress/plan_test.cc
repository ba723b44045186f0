// Bit plans: the knapsack against brute force, bits, fused layers, the file.
#include "curvq/compress/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <random>

#include "compress/knapsack.h"
#include "curvq/core/error.h"

namespace curvq {
namespace {

using internal::KnapsackItem;
using internal::KnapsackSolution;
using internal::solve_knapsack;
using Groups = std::vector<std::vector<KnapsackItem>>;

// The least cost of all choices that fit; infinite if none does.
double brute_force(const Groups& groups, int64_t capacity) {
  double best = std::numeric_limits<double>::infinity();
  const std::function<void(size_t, int64_t, double)> visit = [&](size_t g, int64_t weight,
                                                                 double cost) {
    if (weight > capacity) return;
    if (g == groups.size()) {
      best = std::min(best, cost);
      return;
    }
    for (const KnapsackItem& item : groups[g]) visit(g + 1, weight + item.weight, cost + item.cost);
  };
  visit(0, 0, 0);
  return best;
}

Groups random_groups(std::mt19937& random, size_t groups, int items, int largest, bool ties) {
  std::uniform_int_distribution<int> weight(0, largest), count(1, items), level(0, 5);
  std::uniform_real_distribution<double> cost(0, 1);
  Groups out(groups);
  for (auto& group : out) {
    const int n = count(random);
    for (int i = 0; i < n; ++i)
      group.push_back({weight(random), ties ? level(random) : std::pow(cost(random), 6)});
  }
  return out;
}

TEST(Knapsack, IsAsGoodAsTryingEverything) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 600; ++trial) {
    const Groups groups =
        random_groups(random, 1 + trial % 7, 6, trial % 3 == 0 ? 4 : 1000, trial % 2 == 0);
    int64_t most = 0;
    for (const auto& group : groups) {
      int64_t heaviest = 0;
      for (const KnapsackItem& item : group) heaviest = std::max(heaviest, item.weight);
      most += heaviest;
    }
    for (int64_t capacity = -1; capacity <= most; capacity += std::max<int64_t>(1, most / 9)) {
      const double expected = brute_force(groups, capacity);
      const KnapsackSolution found = solve_knapsack(groups, capacity);
      ASSERT_EQ(found.choice.empty(), std::isinf(expected)) << "trial " << trial;
      if (found.choice.empty()) continue;
      double cost = 0;
      int64_t weight = 0;
      for (size_t g = 0; g < groups.size(); ++g) {
        cost += groups[g][found.choice[g]].cost;
        weight += groups[g][found.choice[g]].weight;
      }
      ASSERT_LE(weight, capacity);
      ASSERT_EQ(weight, found.weight);
      // Sums of at most seven numbers of order one.
      ASSERT_NEAR(cost, expected, 1e-12) << "trial " << trial << " capacity " << capacity;
      ASSERT_NEAR(found.cost, cost, 1e-12);
      ASSERT_LE(found.relaxation, expected + 1e-12);
    }
  }
}

// By weight, one byte at a time: another algorithm, for more groups than brute force can take.
double by_weight(const Groups& groups, int64_t capacity) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<double> best(capacity + 1, 0.0);
  for (const auto& group : groups) {
    std::vector<double> next(capacity + 1, kNever);
    for (const KnapsackItem& item : group) {
      for (int64_t w = item.weight; w <= capacity; ++w)
        next[w] = std::min(next[w], best[w - item.weight] + item.cost);
    }
    best = std::move(next);
  }
  return best[capacity];
}

TEST(Knapsack, SolvesManyGroupsLikeAPlanOfAModel) {
  std::mt19937 random(2);
  std::lognormal_distribution<double> sensitivity(0, 1.5), spread(0, 0.2);
  Groups groups;
  for (int g = 0; g < 120; ++g) {
    const int64_t size = std::vector<int64_t>{9, 16, 40, 20}[g % 4];
    const double s = sensitivity(random);
    groups.emplace_back();
    for (const auto& [bits, loss] : std::vector<std::pair<int64_t, double>>{
             {17, 1.6}, {18, 1.0}, {18, 1.2}, {20, 0.95}, {33, 0.004}, {34, 0.05}, {64, 0}})
      groups.back().push_back({size * bits + 1, s * loss * spread(random)});
  }
  for (const int64_t capacity : {45000, 46500, 50000, 60000, 80000, 170000}) {
    const KnapsackSolution found = solve_knapsack(groups, capacity);
    const double expected = by_weight(groups, capacity);
    EXPECT_NEAR(found.cost, expected, 1e-9 * expected + 1e-12) << capacity;
    EXPECT_LT(found.states, 2000000) << capacity;
    const KnapsackSolution again = solve_knapsack(groups, capacity);
    EXPECT_EQ(found.choice, again.choice);
  }
}

FormatCost cost_of(const LayerShape& shape, const std::optional<Scheme>& format, double loss) {
  FormatCost cost;
  cost.bytes = shape.rows * shape.cols * 4;
  if (format) {
    cost.scheme = scheme_of_layer(*format, shape);
    cost.bytes = cost.scheme->stored_bytes(shape.rows, shape.cols);
  }
  cost.kronecker = loss;
  cost.trace = 2 * loss;
  cost.hawq = 3 * loss;
  return cost;
}

LayerCosts layer(const std::string& name, const std::string& fused, int64_t cols,
                 const std::vector<std::pair<std::string, double>>& choices) {
  LayerCosts out;
  out.name = name;
  out.fused = fused;
  out.rows = 64;
  out.cols = cols;
  for (const auto& [text, loss] : choices)
    out.choices.push_back(cost_of(out, parse_rule_text(text), loss));
  return out;
}

std::vector<LayerCosts> some_layers() {
  return {layer("b.q_proj", "b.qkv", 64, {{"nvfp4", .5}, {"int8", .01}, {"keep", 0}}),
          layer("b.k_proj", "b.qkv", 64, {{"nvfp4", .1}, {"int8", .02}, {"keep", 0}}),
          layer("b.o_proj", "b.o_proj", 64, {{"nvfp4", .4}, {"int8", .01}, {"keep", 0}}),
          layer("b.down_proj", "b.down_proj", 172, {{"int8", .03}, {"keep", 0}})};
}

TEST(Plan, CountsScalesAndTensorScales) {
  const std::vector<LayerCosts> layers = {
      layer("a", "a", 64, {{"nvfp4", 1}, {"mxfp4", 1}, {"int4 group-size=32", 1}, {"int8", 1}}),
      layer("b", "b", 128, {{"nvfp4", 1}, {"mxfp4", 1}, {"int4 group-size=32", 1}, {"int8", 1}})};
  const int64_t weights = 64 * (64 + 128);
  EXPECT_EQ(budget_of_bits(layers, 4.5), weights * 9 / 16 + 8);
  const BitPlan nvfp4 =
      *uniform_plan(layers, Scheme::nvfp4(), solve_plan(layers, 1 << 20, PlanRule::kHawq));
  EXPECT_EQ(nvfp4.bytes, weights * 9 / 16 + 8);  // 4.5 bits fit NVFP4 exactly
  EXPECT_EQ(nvfp4.weights, weights);
  const BitPlan mxfp4 = *uniform_plan(layers, Scheme::mxfp4(), nvfp4);
  EXPECT_EQ(mxfp4.bits(), 4.25);
  EXPECT_EQ(uniform_plan(layers, Scheme::int4(32), nvfp4)->bits(), 5);  // float32 scales
  EXPECT_EQ(uniform_plan(layers, Scheme::int8(), nvfp4)->bytes, weights + 4 * 128);
  EXPECT_FALSE(uniform_plan(layers, Scheme::int4(128), nvfp4).has_value());
}

TEST(Plan, SizesLeaveRoomForWhatNamesShapes) {
  std::vector<LayerCosts> layers = some_layers();
  for (LayerCosts& one : layers) {
    for (FormatCost& cost : one.choices)
      cost.tensor_bytes = cost.bytes + (rule_text(cost.scheme) == "nvfp4" ? 0 : 16);
  }
  for (int64_t size = 20000; size < 100000; size += 1234) {
    const BitPlan plan = solve_plan(layers, budget_of_tensors(layers, size), PlanRule::kKronecker);
    EXPECT_LE(plan.tensor_bytes, size);
    EXPECT_GE(plan.tensor_bytes, plan.bytes);
  }
}

TEST(Plan, FusedLayersAreAlike) {
  const std::vector<LayerCosts> layers = some_layers();
  // INT8 pays most for q alone, but k would have to come along: o is the better use of the bytes.
  const int64_t least = solve_plan(layers, 1 << 20, PlanRule::kKronecker).bytes;
  EXPECT_EQ(least, 3 * 64 * 64 * 4 + 64 * 172 * 4);
  const int64_t nvfp4 = 64 * 64 * 9 / 16 + 4, int8 = 64 * 64 + 64 * 4, down = 64 * 172 + 64 * 4;
  const BitPlan plan = solve_plan(layers, 2 * nvfp4 + int8 + down, PlanRule::kKronecker);
  EXPECT_EQ(rule_text(plan.layers[0].scheme), "nvfp4");
  EXPECT_EQ(rule_text(plan.layers[1].scheme), "nvfp4");
  EXPECT_EQ(rule_text(plan.layers[2].scheme), "int8 group-size=0");
  EXPECT_EQ(rule_text(plan.layers[3].scheme), "int8 group-size=0");
  EXPECT_NEAR(plan.predicted, .5 + .1 + .01 + .03, 1e-12);
  EXPECT_NEAR(solve_plan(layers, 2 * nvfp4 + int8 + down, PlanRule::kHawq).predicted,
              3 * (.5 + .1 + .01 + .03), 1e-12);
  EXPECT_LE(plan.relaxation, plan.predicted);
  // A uniform plan leaves layers that lack the format as they are in the plan.
  const BitPlan uniform = *uniform_plan(layers, Scheme::nvfp4(), plan);
  EXPECT_EQ(rule_text(uniform.layers[2].scheme), "nvfp4");
  EXPECT_EQ(rule_text(uniform.layers[3].scheme), "int8 group-size=0");
  EXPECT_NEAR(uniform.predicted, .5 + .1 + .4 + .03, 1e-12);
}

TEST(Plan, SaysHowSmallPlansCanBe) {
  const std::vector<LayerCosts> layers = some_layers();
  const int64_t least = 3 * (64 * 64 * 9 / 16 + 4) + 64 * 172 + 64 * 4;
  EXPECT_EQ(solve_plan(layers, least, PlanRule::kKronecker).bytes, least);
  try {
    solve_plan(layers, least - 1, PlanRule::kKronecker);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(least) + " bytes"), std::string::npos)
        << error.what();
  }
}

class PlanFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string path = testing::TempDir() + "curvq_plan_test.json";
    std::ofstream(path) << text;
    return path;
  }
  std::string error_of(const std::string& layers, const std::string& hash = "") {
    const std::string path =
        write(R"({"schema_version": 1, "kind": "curvq plan", "model_hash": "aa",
        "layers": )" +
              layers + "}");
    try {
      read_plan(path, hash);
    } catch (const FormatError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(PlanFile, ReadsWhatWasWritten) {
  const std::vector<LayerCosts> layers = some_layers();
  const BitPlan plan = solve_plan(layers, 30000, PlanRule::kKronecker);
  PlannedLayer kept;
  kept.name = "b.extra";
  const SchemeAssignment read =
      read_plan(write(dump_json(plan_json(layers, {kept}, plan, "ff"))), "ff");
  ASSERT_EQ(read.schemes.size(), 5u);
  for (size_t i = 0; i < layers.size(); ++i)
    EXPECT_EQ(rule_text(read.schemes.at(layers[i].name)), rule_text(plan.layers[i].scheme));
  EXPECT_EQ(read.schemes.at("b.extra"), std::nullopt);
}

TEST_F(PlanFile, TextsOfSchemesReadBack) {
  for (const char* text : {"nvfp4", "nvfp4 scale-rule=four-over-six", "mxfp4", "mxfp4 mx-rule=ceil",
                           "int4 group-size=64", "int4 group-size=0 symmetric=false",
                           "int8 group-size=0", "fp8 group-size=0", "keep"})
    EXPECT_EQ(rule_text(parse_rule_text(text)), text);
}

TEST_F(PlanFile, ErrorsNameTheEntry) {
  const auto says = [](const std::string& error, const std::string& what) {
    EXPECT_NE(error.find(what), std::string::npos) << "'" << error << "' lacks '" << what << "'";
  };
  EXPECT_EQ(error_of(R"({"x.o_proj": {"scheme": "nvfp4"}})"), "");
  says(error_of(R"({"x.o_proj": {"scheme": "int5"}})"), "x.o_proj: unknown scheme 'int5'");
  says(error_of(R"({"x.o_proj": {"scheme": "int4 groups=2"}})"), "x.o_proj: ");
  says(error_of(R"({"x.o_proj": {"scheme": 4}})"), "the entry x.o_proj has no text \"scheme\"");
  says(error_of(R"({"x.o_proj": "nvfp4"})"), "the entry x.o_proj");
  says(error_of(R"({"x.q_proj": {"scheme": "nvfp4"}, "x.k_proj": {"scheme": "int8"}})"),
       "x.k_proj, which loaders fuse with it");
  says(error_of("[]"), "no object \"layers\"");
  says(error_of("{}", "bb"), "hash aa, this one has bb");
  EXPECT_THROW(read_plan(write("[]"), ""), FormatError);
  EXPECT_THROW(read_plan(write(R"({"kind": "curvq plan", "schema_version": 2, "layers": {}})"), ""),
               FormatError);
}

TEST_F(PlanFile, EveryLayerNeedsAnEntry) {
  LayerShape a{"a", 4, 32, DType::kF32}, b{"b", 4, 32, DType::kF32};
  PlanOptions options;
  options.assignment = SchemeAssignment{"f.json", {{"a", Scheme::int8()}}};
  const auto error = [&](const std::vector<LayerShape>& layers) -> std::string {
    try {
      plan_layers(layers, options);
    } catch (const FormatError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error({a, b}).find("f.json: there is no entry for b"), std::string::npos);
  EXPECT_NE(error({b}).find("there is no entry for b"), std::string::npos);
  options.assignment->schemes["c"] = std::nullopt;
  EXPECT_NE(error({a}).find("the entry c names none"), std::string::npos);
  options.assignment->schemes = {{"a", Scheme::int8()}, {"b", std::nullopt}};
  const std::vector<PlannedLayer> plan = plan_layers({a, b}, options);
  EXPECT_EQ(plan[0].scheme->name(), "int8");
  EXPECT_EQ(plan[1].reason, "kept by the plan");
}

}  // namespace
}  // namespace curvq
