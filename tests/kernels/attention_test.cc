#include "curvq/kernels/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "curvq/core/parallel.h"
#include "linear_testing.h"

namespace curvq {
namespace {

class AttentionTest : public CpuPathTest {};

// Queries, keys and values [tokens, heads, head_dim] between pages that nobody may touch.
struct Problem {
  AttentionShape shape;
  Guarded<float> q, k, v, out;

  explicit Problem(const AttentionShape& s, unsigned seed = 1)
      : shape(s),
        q(random_values(s.queries * s.heads * s.head_dim, seed)),
        k(random_values(s.keys * s.kv_heads * s.head_dim, seed + 1)),
        v(random_values(s.keys * s.kv_heads * s.head_dim, seed + 2)),
        out(s.queries * s.heads * s.head_dim) {}

  int64_t width() const { return shape.heads * shape.head_dim; }
  HeadVectors queries() { return {q.data(), width(), shape.head_dim}; }
  HeadVectors keys() { return {k.data(), shape.kv_heads * shape.head_dim, shape.head_dim}; }
  HeadVectors values() { return {v.data(), shape.kv_heads * shape.head_dim, shape.head_dim}; }
  AttentionTraffic run() {
    return attention(shape, queries(), keys(), values(), out.data(), width());
  }

  // The formula in double precision for query i of head h, and what attention.h allows beside it.
  void exact(int64_t i, int64_t h, std::vector<double>& value, double& bound) {
    const int64_t dim = shape.head_dim, seen = shape.keys - shape.queries + i + 1;
    const int64_t kv = h * shape.kv_heads / shape.heads;
    const float* query = q.data() + i * width() + h * dim;
    std::vector<double> score(seen);
    double largest = -std::numeric_limits<double>::infinity(), magnitude = 0, most = 0, sum = 0;
    for (int64_t j = 0; j < seen; ++j) {
      const float* key = k.data() + (j * shape.kv_heads + kv) * dim;
      double moved = 0;
      for (int64_t d = 0; d < dim; ++d) {
        score[j] += static_cast<double>(query[d]) * key[d];
        moved += std::fabs(static_cast<double>(query[d]) * key[d]);
      }
      score[j] /= std::sqrt(static_cast<double>(dim));
      largest = std::max(largest, score[j]), magnitude = std::max(magnitude, moved);
    }
    value.assign(dim, 0.0);
    for (double& s : score) sum += s = std::exp(s - largest);
    for (int64_t j = 0; j < seen; ++j) {
      for (int64_t d = 0; d < dim; ++d) {
        const double x = v[(j * shape.kv_heads + kv) * dim + d];
        value[d] += score[j] / sum * x, most = std::max(most, std::fabs(x));
      }
    }
    const double e =
        (static_cast<double>(dim) + 4) * kHalfUlp * magnitude / std::sqrt(static_cast<double>(dim));
    bound = (2 * e + (static_cast<double>(seen) + 12) * kHalfUlp) * most * 1.01;
  }

  void expect_exact() {
    run();
    std::vector<double> value;
    double bound = 0;
    for (int64_t i = 0; i < shape.queries; ++i) {
      for (int64_t h = 0; h < shape.heads; ++h) {
        exact(i, h, value, bound);
        for (int64_t d = 0; d < shape.head_dim; ++d) {
          const double got = out[(i * shape.heads + h) * shape.head_dim + d];
          ASSERT_LE(std::fabs(got - value[d]), bound) << "query " << i << ", head " << h;
        }
      }
    }
  }
};

TEST_P(AttentionTest, IsTheFormula) {
  for (const AttentionShape& shape : std::vector<AttentionShape>{{1, 1, 1, 1, 1},
                                                                 {1, 200, 9, 3, 64},
                                                                 {70, 70, 8, 4, 8},
                                                                 {33, 150, 4, 1, 24},
                                                                 {5, 64, 6, 2, 80},
                                                                 {17, 65, 3, 3, 7},
                                                                 {2, 129, 2, 1, 256}}) {
    SCOPED_TRACE(std::to_string(shape.queries) + " queries, " + std::to_string(shape.keys) +
                 " keys, head_dim " + std::to_string(shape.head_dim));
    Problem(shape).expect_exact();
  }
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  Problem problem({40, 140, 2, 1, 32});
  for (int64_t i = 0; i < 40 * problem.width(); ++i) problem.q[i] *= 200;
  problem.expect_exact();
}

TEST_P(AttentionTest, DecodingGivesTheBitsOfABatch) {
  Problem batch({130, 130, 6, 2, 48});
  batch.run();
  const std::vector<float> all = batch.out.values();
  const int64_t width = batch.width();
  for (const int64_t i : {0, 1, 63, 64, 65, 129}) {
    std::vector<float> one(width);
    attention({1, i + 1, 6, 2, 48}, {batch.q.data() + i * width, width, 48}, batch.keys(),
              batch.values(), one.data(), width);
    ASSERT_EQ(one, std::vector<float>(all.begin() + i * width, all.begin() + (i + 1) * width));
  }
}

TEST_P(AttentionTest, StridesThreadsAndWritingOverTheQueries) {
  Problem packed({90, 100, 4, 2, 16});
  packed.run();
  const std::vector<float> wanted = packed.out.values();
  set_num_threads(2);
  packed.run();
  set_num_threads(1);
  EXPECT_EQ(packed.out.values(), wanted);
  // Head by head with room behind each, as in a cache.
  const int64_t capacity = 111;
  Guarded<float> k((2 * capacity - 11) * 16), v((2 * capacity - 11) * 16);
  for (int64_t j = 0; j < 100; ++j) {
    for (int64_t h = 0; h < 2; ++h) {
      std::copy_n(packed.k.data() + (j * 2 + h) * 16, 16, k.data() + (h * capacity + j) * 16);
      std::copy_n(packed.v.data() + (j * 2 + h) * 16, 16, v.data() + (h * capacity + j) * 16);
    }
  }
  attention(packed.shape, packed.queries(), {k.data(), 16, capacity * 16},
            {v.data(), 16, capacity * 16}, packed.q.data(), packed.width());
  EXPECT_EQ(packed.q.values(), wanted);
}

TEST_P(AttentionTest, WhatIsNotFiniteGivesWhatTheFormulaGives) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const auto is_nan = [](Problem& p, int64_t i) { return std::isnan(p.out[i * p.width()]); };
  for (const float bad : {nan, infinity}) {
    Problem key({20, 80, 1, 1, 8}), value({20, 80, 1, 1, 8}), query({20, 80, 1, 1, 8});
    std::fill_n(key.q.data(), 20 * 8, 1.0f);
    key.k[70 * 8] = bad, value.v[70 * 8] = bad, query.q[10 * 8] = bad;
    key.run(), value.run(), query.run();
    // Query 9 is the last that does not see token 70.
    for (int64_t i = 0; i < 20; ++i) {
      EXPECT_EQ(is_nan(key, i), i >= 10) << i;
      EXPECT_EQ(std::isfinite(value.out[i * 8]), i < 10) << i;
      EXPECT_TRUE(std::isfinite(value.out[i * 8 + 1])) << i;
      EXPECT_EQ(is_nan(query, i), i == 10) << i;
    }
  }
  // A score of minus infinity is a key that counts nothing.
  Problem hidden({1, 3, 1, 1, 1});
  hidden.q[0] = 1, hidden.k[0] = -infinity, hidden.k[1] = hidden.k[2] = 0.5f;
  hidden.v[0] = 1e30f, hidden.v[1] = 1, hidden.v[2] = 3;
  hidden.run();
  EXPECT_EQ(hidden.out[0], 2);
}

// Each tile of 48 rows reads the keys and values it sees once, and queries and outputs move once.
// With M floats in a tile that is 2 M / (48 head_dim) = 11.3 times queries keys head_dim^2 / M, and
// less than one and a half of it for queries and outputs.
TEST_P(AttentionTest, TrafficIsThatOfTiles) {
  const int64_t tokens = 768, heads = 3, dim = 64;
  Problem problem({tokens, tokens, heads, 1, dim});
  const AttentionTraffic traffic = problem.run();
  int64_t reads = tokens * heads * dim;
  for (int64_t row = 0; row < tokens * heads; row += 48) reads += 2 * dim * (row + 48) / heads;
  EXPECT_EQ(traffic.read_bytes, 4 * reads);
  EXPECT_EQ(traffic.written_bytes, 4 * tokens * heads * dim);
  const double tile = 2 * 48 * 64 + 2 * 64 * 64 + 48 * 64;
  const double least = static_cast<double>(heads * tokens) * tokens / 2 * dim * dim / tile;
  EXPECT_LT(static_cast<double>(traffic.read_bytes + traffic.written_bytes) / 4, 13 * least);
  // A matrix of scores would be written and read at least once.
  EXPECT_LT(traffic.read_bytes + traffic.written_bytes, 2 * 4 * heads * tokens * tokens);
}

TEST_P(AttentionTest, RefusesWhatCannotBe) {
  Problem p({4, 6, 4, 2, 8});
  const auto run = [&](const AttentionShape& shape) {
    attention(shape, p.queries(), p.keys(), p.values(), p.out.data(), p.width());
  };
  EXPECT_THROW(run({-1, 6, 4, 2, 8}), UsageError);
  EXPECT_THROW(run({7, 6, 4, 2, 8}), UsageError);
  EXPECT_THROW(run({4, 6, 4, 3, 8}), UsageError);
  EXPECT_THROW(run({4, 6, 4, 0, 8}), UsageError);
  EXPECT_THROW(run({4, 6, 4, 2, 0}), UsageError);
  EXPECT_THROW(run({4, 6, 4, 2, 9}), UsageError);  // strides
  EXPECT_THROW(attention(p.shape, p.queries(), p.keys(), p.values(), nullptr, 32), UsageError);
  EXPECT_THROW(attention(p.shape, p.queries(), {nullptr, 16, 8}, p.values(), p.out.data(), 32),
               UsageError);
  EXPECT_THROW(attention(p.shape, p.queries(), p.keys(), p.values(), p.out.data(), 31), UsageError);
  EXPECT_THROW(attention(p.shape, p.queries(), p.keys(), p.values(), p.k.data() + 90, 32),
               UsageError);
  run({0, 6, 4, 2, 8});  // nothing to do
}

INSTANTIATE_TEST_SUITE_P(Paths, AttentionTest, kAllCpuPaths, cpu_path_name);

}  // namespace
}  // namespace curvq
