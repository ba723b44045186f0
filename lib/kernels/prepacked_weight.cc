#include "kernels/prepacked_weight.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/formats/dtype.h"
#include "curvq/formats/minifloat.h"

namespace curvq {
namespace internal {

PanelBytes::PanelBytes(int64_t size) : size_(size) {
  constexpr int64_t kHugePage = 2 << 20, kCacheLine = 64;
  if (size == 0) return;
  void* p = nullptr;
  const int64_t alignment = size >= kHugePage ? kHugePage : kCacheLine;
  if (posix_memalign(&p, alignment, size) != 0)
    throw ResourceError(format("no memory for %lld bytes of a packed weight", (long long)size));
  bytes_.reset(static_cast<uint8_t*>(p));
  if (alignment == kHugePage) madvise(p, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  std::memset(p, 0, size);
}

int64_t panel_scale_bytes(PanelScale scale) {
  if (scale == PanelScale::kF32) return 4;
  return scale == PanelScale::kF16 || scale == PanelScale::kBF16 ? 2 : 1;
}

namespace {

PanelElement element_of(const Scheme& scheme) {
  if (scheme.element == ElementType::kE2M1) return PanelElement::kE2M1;
  if (scheme.element == ElementType::kE4M3) return PanelElement::kE4M3;
  return scheme.bits == 4 ? PanelElement::kInt4 : PanelElement::kInt8;
}

// The form in which a grid's scales are stored; those that it does not hold exactly stay float32.
PanelScale scale_form(const ScaleGrid& grid) {
  const Scheme& scheme = grid.scheme;
  if (scheme.scale_type == ScaleType::kE4M3) return PanelScale::kE4M3;
  if (scheme.scale_type == ScaleType::kE8M0) return PanelScale::kE8M0;
  if (scheme.scale_dtype == DType::kF16) return PanelScale::kF16;
  return scheme.scale_dtype == DType::kBF16 ? PanelScale::kBF16 : PanelScale::kF32;
}

// Scale i of a grid as stored.
uint32_t stored_scale(const ScaleGrid& grid, PanelScale form, int64_t i) {
  switch (form) {
    case PanelScale::kE4M3:
    case PanelScale::kE8M0:
      return grid.scale_codes[i];
    case PanelScale::kF16:
      return f32_to_f16(grid.scales[i]);
    case PanelScale::kBF16:
      return std::bit_cast<uint32_t>(grid.scales[i]) >> 16;
    case PanelScale::kF32:
      break;
  }
  return std::bit_cast<uint32_t>(grid.scales[i]);
}

float scale_value(PanelScale form, uint32_t stored, float divisor) {
  switch (form) {
    case PanelScale::kE4M3:
      return e4m3_to_f32(static_cast<uint8_t>(stored)) / divisor;
    case PanelScale::kE8M0:
      return e8m0_to_f32(static_cast<uint8_t>(stored));
    case PanelScale::kF16:
      return f16_to_f32(static_cast<uint16_t>(stored));
    case PanelScale::kBF16:
      return std::bit_cast<float>(stored << 16);
    case PanelScale::kF32:
      break;
  }
  return std::bit_cast<float>(stored);
}

// Whether the kernels' quotient of an E4M3 scale, which does not divide, is that of a division.
bool divides_exactly(uint32_t code, float divisor) {
  const float scale = e4m3_to_f32(static_cast<uint8_t>(code)), reciprocal = 1 / divisor;
  const float near = scale * reciprocal;
  return std::fma(std::fma(-near, divisor, scale), reciprocal, near) == scale / divisor;
}

bool holds_exactly(const ScaleGrid& grid, PanelScale form) {
  const bool coded = form == PanelScale::kE4M3 || form == PanelScale::kE8M0;
  if (coded && grid.scale_codes.size() != grid.scales.size()) return false;
  float table[256] = {};
  for (uint32_t code = 0; coded && code < 256; ++code) {
    table[code] = scale_value(form, code, grid.global_divisor);
    if (form == PanelScale::kE4M3 && !divides_exactly(code, grid.global_divisor))
      table[code] = std::numeric_limits<float>::quiet_NaN();  // equal to no scale
  }
  for (size_t i = 0; i < grid.scales.size(); ++i) {
    const float value =
        coded ? table[grid.scale_codes[i]]
              : scale_value(form, stored_scale(grid, form, static_cast<int64_t>(i)), 1);
    if (!std::isfinite(value) ||
        std::bit_cast<uint32_t>(value) != std::bit_cast<uint32_t>(grid.scales[i]))
      return false;
  }
  return true;
}

// Four nibbles in the low halves of four bytes, and back.
uint32_t spread(uint32_t nibbles) {
  nibbles = (nibbles | nibbles << 8) & 0x00ff00ffu;
  return (nibbles | nibbles << 4) & 0x0f0f0f0fu;
}
uint32_t gather(uint32_t bytes) {
  bytes &= 0x0f0f0f0fu;
  bytes = (bytes | bytes >> 4) & 0x00ff00ffu;
  return (bytes | bytes >> 8) & 0xffffu;
}

// Moves codes between a matrix and panels: each line of eight columns of a row.
class Lines {
 public:
  explicit Lines(const PrepackedWeightParts& parts)
      : parts_(parts),
        group_(parts.group_columns()),
        flip_(parts.panels.element == PanelElement::kInt8 ? 0x80808080u : 0),
        aligned_(group_ % kLineColumns == 0 || parts.grid.groups == 1) {}

  void pack(const QuantizedMatrix& matrix, int64_t row, uint8_t* panel) const {
    if (parts_.packs_nibbles() && aligned_) {  // lines follow each other in words of a row
      const uint8_t* from = matrix.codes.data() + row * matrix.row_bytes;
      uint8_t* to = panel + row % kPanelRows * 4;
      for (int64_t line = 0; line < parts_.lines(); ++line, from += 4, to += 64) {
        uint32_t word;
        std::memcpy(&word, from, 4);
        word = spread(word & 0xffff) | spread(word >> 16) << 4;
        std::memcpy(to, &word, 4);
      }
      return;
    }
    visit(row, panel, [&](uint8_t* at, int64_t first, int64_t count) {
      uint32_t words[2] = {};
      if (!parts_.packs_nibbles() && count == kLineColumns) {
        std::memcpy(words, matrix.codes.data() + row * matrix.row_bytes + first, sizeof(words));
      } else {
        for (int64_t i = 0; i < count; ++i) put(words, i, matrix.code(row, first + i));
      }
      if (parts_.packs_nibbles()) {
        words[0] = spread(words[0] & 0xffff) | spread(words[0] >> 16) << 4;
      } else {
        words[0] ^= flip_, words[1] ^= flip_;
        std::memcpy(at + 64, &words[1], 4);
      }
      std::memcpy(at, &words[0], 4);
    });
  }

  void unpack(const uint8_t* panel, int64_t row, QuantizedMatrix& matrix) const {
    visit(row, panel, [&](const uint8_t* at, int64_t first, int64_t count) {
      uint32_t words[2] = {};
      std::memcpy(&words[0], at, 4);
      if (parts_.packs_nibbles()) {
        words[0] = gather(words[0]) | gather(words[0] >> 4) << 16;
      } else {
        std::memcpy(&words[1], at + 64, 4);
        words[0] ^= flip_, words[1] ^= flip_;
      }
      const int bits = parts_.grid.scheme.bits;
      for (int64_t i = 0; i < count; ++i) {
        const uint32_t word = words[i * bits / 32];
        const uint32_t code = word >> (i * bits % 32) & ((1u << bits) - 1);
        matrix.set_code(row, first + i, static_cast<uint8_t>(code));
      }
    });
  }

 private:
  void put(uint32_t* words, int64_t i, uint32_t code) const {
    const int bits = parts_.grid.scheme.bits;
    words[i * bits / 32] |= code << (i * bits % 32);
  }

  template <class Byte, class Fn>
  void visit(int64_t row, Byte* panel, Fn&& fn) const {
    Byte* at = panel + row % kPanelRows * 4;
    for (int64_t g = 0; g < parts_.grid.groups; ++g) {
      for (int64_t l = 0; l < parts_.panels.lines_per_group; ++l, at += parts_.line_bytes()) {
        const int64_t first = l * kLineColumns;
        fn(at, g * group_ + first, std::min(kLineColumns, group_ - first));
      }
    }
  }

  const PrepackedWeightParts& parts_;
  int64_t group_;
  uint32_t flip_;  // what turns code = value + 128 into two's complement
  bool aligned_;   // lines begin at whole bytes
};

void check_codes(const QuantizedMatrix& weight) {
  if (weight.scheme().element != ElementType::kE4M3) return;
  for (int64_t r = 0; r < weight.rows(); ++r) {
    for (int64_t c = 0; c < weight.cols(); ++c) {
      if ((weight.code(r, c) & 0x7f) == 0x7f) {
        throw NumericalError(
            format("packed weight: row %lld, column %lld is NaN", (long long)r, (long long)c));
      }
    }
  }
}

// A row's scales into its place in a panel.
template <class Stored>
void pack_scales(const ScaleGrid& grid, PanelScale form, int64_t row, uint8_t* panel) {
  auto* to = reinterpret_cast<Stored*>(panel) + row % kPanelRows;
  for (int64_t g = 0; g < grid.groups; ++g)
    to[g * kPanelRows] = static_cast<Stored>(stored_scale(grid, form, row * grid.groups + g));
}

void pack_panel(const QuantizedMatrix& weight, int64_t p, PrepackedWeightParts& parts) {
  const ScaleGrid& grid = weight.grid;
  const Panels& panels = parts.panels;
  const Lines lines(parts);
  uint8_t* codes = parts.codes.data() + p * panels.code_stride;
  uint8_t* scales = parts.scales.data() + p * panels.scale_stride;
  for (int64_t row = p * kPanelRows; row < std::min(grid.rows, (p + 1) * kPanelRows); ++row) {
    lines.pack(weight, row, codes);
    switch (panel_scale_bytes(panels.scale)) {
      case 1:
        pack_scales<uint8_t>(grid, panels.scale, row, scales);
        break;
      case 2:
        pack_scales<uint16_t>(grid, panels.scale, row, scales);
        break;
      default:
        pack_scales<uint32_t>(grid, panels.scale, row, scales);
    }
    if (grid.zero_points.empty()) continue;
    uint8_t* zeros = parts.zero_points.data() + p * panels.zero_stride + row % kPanelRows;
    for (int64_t g = 0; g < grid.groups; ++g)
      zeros[g * kPanelRows] = static_cast<uint8_t>(grid.zero_point(row, g));
  }
}

}  // namespace
}  // namespace internal

using internal::PrepackedWeightParts;

PrepackedWeight::PrepackedWeight(const QuantizedMatrix& weight) {
  const auto begin = std::chrono::steady_clock::now();
  const ScaleGrid& grid = weight.grid;
  if (grid.cols == 0) throw UsageError("packed weight: no columns");
  internal::check_codes(weight);
  auto parts = std::make_shared<PrepackedWeightParts>();
  parts->grid.scheme = grid.scheme;
  parts->input_scale = weight.input_scale;
  parts->grid.rows = grid.rows, parts->grid.cols = grid.cols, parts->grid.groups = grid.groups;
  parts->grid.global_divisor = grid.global_divisor, parts->grid.tensor_amax = grid.tensor_amax;
  internal::Panels& panels = parts->panels;
  panels.element = internal::element_of(grid.scheme);
  panels.scale = internal::scale_form(grid);
  if (!internal::holds_exactly(grid, panels.scale)) {
    panels.scale = internal::PanelScale::kF32;
    parts->scale_codes = grid.scale_codes;
  }
  panels.divisor = grid.global_divisor;
  panels.lines_per_group =
      (parts->group_columns() + internal::kLineColumns - 1) / internal::kLineColumns;
  panels.segments_per_group =
      (panels.lines_per_group + internal::kSegmentLines - 1) / internal::kSegmentLines;
  const int64_t scales = grid.groups * internal::kPanelRows, count = parts->num_panels();
  panels.code_stride = parts->lines() * parts->line_bytes();
  panels.scale_stride = scales * internal::panel_scale_bytes(panels.scale);
  panels.zero_stride = grid.zero_points.empty() ? 0 : scales;
  parts->codes = internal::PanelBytes(count * panels.code_stride);
  parts->scales = internal::PanelBytes(count * panels.scale_stride);
  parts->zero_points = internal::PanelBytes(count * panels.zero_stride);
  panels.codes = parts->codes.data();
  panels.scales = parts->scales.data();
  panels.zero_points = reinterpret_cast<const int8_t*>(parts->zero_points.data());
  parallel_for(0, count, [&](int64_t p) { internal::pack_panel(weight, p, *parts); });
  parts->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  parts_ = std::move(parts);
}

int64_t PrepackedWeight::rows() const { return parts_->grid.rows; }
int64_t PrepackedWeight::cols() const { return parts_->grid.cols; }
const Scheme& PrepackedWeight::scheme() const { return parts_->grid.scheme; }
double PrepackedWeight::prepack_seconds() const { return parts_->seconds; }

int64_t PrepackedWeight::memory_bytes() const {
  return parts_->codes.size() + parts_->scales.size() + parts_->zero_points.size() +
         static_cast<int64_t>(parts_->scale_codes.size());
}

QuantizedMatrix PrepackedWeight::unpack() const {
  const internal::Panels& panels = parts_->panels;
  ScaleGrid grid = parts_->grid;
  const int64_t count = grid.rows * grid.groups;
  const int64_t scale_bytes = internal::panel_scale_bytes(panels.scale);
  grid.scales.resize(count);
  if (scale_bytes == 1) grid.scale_codes.resize(count);
  if (!parts_->scale_codes.empty()) grid.scale_codes = parts_->scale_codes;
  if (panels.zero_points != nullptr) grid.zero_points.resize(count);
  for (int64_t row = 0; row < grid.rows; ++row) {
    const int64_t p = row / internal::kPanelRows;
    for (int64_t g = 0; g < grid.groups; ++g) {
      const int64_t at = g * internal::kPanelRows + row % internal::kPanelRows;
      const int64_t i = row * grid.groups + g;
      uint32_t stored = 0;
      std::memcpy(&stored, panels.scales + p * panels.scale_stride + at * scale_bytes, scale_bytes);
      grid.scales[i] = internal::scale_value(panels.scale, stored, grid.global_divisor);
      if (scale_bytes == 1) grid.scale_codes[i] = static_cast<uint8_t>(stored);
      if (!grid.zero_points.empty())
        grid.zero_points[i] = panels.zero_points[p * panels.zero_stride + at];
    }
  }
  QuantizedMatrix matrix(std::move(grid));
  matrix.input_scale = parts_->input_scale;
  const internal::Lines lines(*parts_);
  for (int64_t row = 0; row < matrix.rows(); ++row)
    lines.unpack(panels.codes + row / internal::kPanelRows * panels.code_stride, row, matrix);
  return matrix;
}

bool has_integer_inputs(const Scheme& scheme) { return scheme.bits == 4; }

bool has_input_rounding(const Scheme& scheme, InputRounding rounding) {
  const bool integer = rounding == InputRounding::kA8 || rounding == InputRounding::kA15;
  return !integer || has_integer_inputs(scheme);
}

}  // namespace curvq
