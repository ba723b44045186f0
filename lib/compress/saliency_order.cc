#include "compress/saliency_order.h"

#include "curvq/formats/quantized_matrix.h"

namespace curvq::internal {

SaliencyOrder::SaliencyOrder(const float* upper, int64_t size, int64_t ld)
    : upper_(upper),
      size_(size),
      ld_(ld),
      inverse_(size * size, 0.0),
      target_(size),
      rounded_(size) {
  for (int64_t k = 0; k < size; ++k) {
    for (int64_t i = k; i < size; ++i) {
      for (int64_t j = k; j < size; ++j)
        inverse_[i * size + j] += static_cast<double>(upper[k * ld + i]) * upper[k * ld + j];
    }
  }
}

void SaliencyOrder::round(const Scheme& scheme, std::vector<Column>& columns) {
  left_ = inverse_;
  std::vector<uint8_t> done(size_, 0);
  for (int64_t i = 0; i < size_; ++i) target_[i] = columns[i].weight;
  const auto round_one = [&](int64_t i) {
    Column& column = columns[i];
    column.code = encode(scheme, column.kept ? static_cast<float>(target_[i]) : 0.0f, column.scale,
                         column.zero_point);
    return static_cast<double>(decode(scheme, column.code, column.scale, column.zero_point));
  };
  for (int64_t step = 0; step < size_; ++step) {
    int64_t next = -1;
    double least = 0;
    for (int64_t i = 0; i < size_; ++i) {
      if (done[i]) continue;
      const double change = target_[i] - round_one(i);
      const double saliency = change * change / left_[i * size_ + i];
      if (next >= 0 && !(saliency < least)) continue;
      next = i;
      least = saliency;
    }
    done[next] = 1;
    rounded_[next] = round_one(next);
    const double share = (target_[next] - rounded_[next]) / left_[next * size_ + next];
    const std::vector<double> row(left_.begin() + next * size_, left_.begin() + (next + 1) * size_);
    for (int64_t i = 0; i < size_; ++i) {
      if (done[i]) continue;
      target_[i] -= share * row[i];
      const double factor = row[i] / row[next];
      for (int64_t j = 0; j < size_; ++j) left_[i * size_ + j] -= factor * row[j];
    }
  }
  // What the block's change d calls for behind it: d U_JJ^-1 U_J,later.
  for (int64_t j = 0; j < size_; ++j) {
    double e = columns[j].weight - rounded_[j];
    for (int64_t i = 0; i < j; ++i)
      e -= static_cast<double>(columns[i].error) * upper_[i * ld_ + j];
    columns[j].error = static_cast<float>(e / upper_[j * ld_ + j]);
  }
}

}  // namespace curvq::internal
