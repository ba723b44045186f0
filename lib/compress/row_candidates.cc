#include "compress/row_candidates.h"

#include <algorithm>
#include <cmath>

#include "compress/k_best.h"
#include "curvq/core/parallel.h"

namespace curvq::internal {

ValueTable::ValueTable(const Scheme& scheme) : scheme_(scheme) {
  std::vector<std::pair<float, uint8_t>> all;
  for (int code = 0; code < 1 << scheme.bits; ++code) {
    const float value = decode(scheme, static_cast<uint8_t>(code), 1.0f, 0);
    // Each value by the code that rounding gives it; of the zeros, for instance, the positive one.
    if (std::isfinite(value) && encode(scheme, value, 1.0f, 0) == code)
      all.emplace_back(value, static_cast<uint8_t>(code));
  }
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == 0 || all[i].first != all[i - 1].first) codes_.push_back(all[i].second);
  }
}

void ValueTable::fill(float scale, int zero_point, float* values) const {
  for (int64_t i = 0; i < size(); ++i)
    values[i] = decode(scheme_, code(scale, i), scale, zero_point);
}

void choose_among_candidates(const float* weight, const PreparedHessian& prepared,
                             int64_t candidates, const std::vector<uint8_t>& kept,
                             QuantizedMatrix& matrix, std::vector<float>& losses) {
  const int64_t rows = matrix.rows(), cols = matrix.cols(), groups = matrix.grid.groups;
  const Scheme& scheme = matrix.scheme();
  const ValueTable table(scheme);
  static constexpr float kZero[] = {0.0f};
  const auto chunk = std::max<int64_t>(1, rows / 64);  // rows that share an object
  parallel_for(0, (rows + chunk - 1) / chunk, [&](int64_t c) {
    KBest search(prepared.upper.data(), cols, cols, candidates);
    std::vector<float> values(groups * table.size()), row(cols);
    ColumnValues of_column(cols);
    for (int64_t r = c * chunk; r < std::min(rows, (c + 1) * chunk); ++r) {
      for (int64_t g = 0; g < groups; ++g) {
        table.fill(matrix.grid.scale(r, g), matrix.grid.zero_point(r, g),
                   values.data() + g * table.size());
      }
      for (int64_t j = 0; j < cols; ++j) {
        const int64_t column = prepared.order[j];
        row[j] = weight[r * cols + column];
        const float* of_group = values.data() + scheme.group_of(column) * table.size();
        of_column[j] = {of_group, of_group + table.size()};
        if (!kept.empty() && !kept[column * rows + r]) of_column[j] = kZero;
      }
      const float loss = search.search(row.data(), 1, of_column);
      if (!(loss < losses[r])) continue;
      losses[r] = loss;
      for (int64_t j = 0; j < cols; ++j) {
        const int64_t column = prepared.order[j];
        if (!kept.empty() && !kept[column * rows + r]) continue;
        const float scale = matrix.grid.scale(r, scheme.group_of(column));
        matrix.set_code(r, column, table.code(scale, search.choices()[j]));
      }
    }
  });
}

double nearest_plane_bound(const PreparedHessian& prepared, const ScaleGrid& grid) {
  const ValueTable table(grid.scheme);
  std::vector<float> values(table.size());
  table.fill(1.0f, 0, values.data());
  double gap = 0;
  for (int64_t i = 1; i < table.size(); ++i)
    gap = std::max(gap, static_cast<double>(values[i]) - values[i - 1]);
  double bound = 0;
  for (int64_t j = 0; j < grid.cols; ++j) {
    const double pivot = prepared.upper[j * grid.cols + j];
    const int64_t group = grid.scheme.group_of(prepared.order[j]);
    for (int64_t r = 0; r < grid.rows; ++r) {
      const double half = gap * grid.scale(r, group) / 2;
      bound += half * half / (pivot * pivot);
    }
  }
  return bound;
}

}  // namespace curvq::internal
