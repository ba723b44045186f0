#include "curvq/io/expert_tensors.h"

#include <algorithm>
#include <cstring>

#include "curvq/core/error.h"
#include "io/text.h"

namespace curvq {
namespace {

// Element [row, col] lies at base + row * row_stride + col * col_stride.
struct Strides {
  const std::byte* base = nullptr;
  int64_t row = 0, col = 0;
};

class StridedMatrix : public TensorEncoding {
 public:
  // `stored`: where the bytes to let go of begin, as many as the matrix has.
  StridedMatrix(const TensorInfo& info, const Strides& strides, const std::byte* stored)
      : info_(info), strides_(strides), stored_(stored) {}

  std::string name() const override { return std::string(dtype_name(info_.dtype)); }
  const std::byte* stored() const override { return stored_; }
  int64_t stored_bytes() const override { return info_.num_bytes(); }

  void read(int64_t begin, int64_t count, void* out) const override {
    const int64_t cols = info_.shape.back();
    auto* to = static_cast<std::byte*>(out);
    while (count > 0) {
      const int64_t row = begin / cols, col = begin % cols;
      // A tile of whole rows, or what there is of one.
      const int64_t rows = col > 0 || count < cols ? 1 : std::min(count / cols, kTileRows);
      const int64_t run = rows > 1 ? cols : std::min(count, cols - col);
      copy(strides_.base + row * strides_.row + col * strides_.col, rows, run, to);
      begin += rows * run;
      count -= rows * run;
      to += rows * run * static_cast<int64_t>(dtype_bytes(info_.dtype));
    }
  }

 private:
  // Rows whose elements of a column share cache lines where columns follow each other in the file.
  static constexpr int64_t kTileRows = 32;

  void copy(const std::byte* from, int64_t rows, int64_t cols, std::byte* to) const {
    const size_t size = dtype_bytes(info_.dtype);
    if (strides_.col == static_cast<int64_t>(size)) {
      const size_t bytes = size * static_cast<size_t>(cols);
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(to + r * static_cast<int64_t>(bytes), from + r * strides_.row, bytes);
    } else if (size == 2) {
      gather<2>(from, rows, cols, to);
    } else if (size == 4) {
      gather<4>(from, rows, cols, to);
    } else {
      gather<8>(from, rows, cols, to);
    }
  }

  template <size_t kSize>
  void gather(const std::byte* from, int64_t rows, int64_t cols, std::byte* to) const {
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(to + static_cast<int64_t>(kSize) * (r * cols + c),
                    from + r * strides_.row + c * strides_.col, kSize);
    }
  }

  TensorInfo info_;
  Strides strides_;
  const std::byte* stored_;
};

// How one of the tensors is laid out, behind the experts.
struct Form {
  const char* ending;  // behind gate_up_proj or down_proj
  const char* part;    // what it is of an expert's layer
  size_t rank;
};
constexpr Form kForms[] = {{"", ".weight", 3},
                           {"_bias", ".bias", 2},
                           {"_blocks", ".weight_packed", 4},
                           {"_scales", ".weight_scale", 3}};

void check(const TensorView& tensor, const Form& form, bool gate_up) {
  const bool packed = form.rank == 4 || std::string(form.part) == ".weight_scale";
  const bool fits = packed ? tensor.dtype == DType::kU8 : is_floating_point(tensor.dtype);
  const bool blocks = form.rank != 4 || (tensor.shape.size() == 4 && tensor.shape[3] == 16);
  if (tensor.shape.size() != form.rank || !fits || !blocks || tensor.num_elements() == 0) {
    throw FormatError(tensor.file + ": " + io::printable(tensor.name) + " is " +
                      std::string(dtype_name(tensor.dtype)) + " " + shape_string(tensor.shape) +
                      ", wanted " + (packed ? "U8" : "F32, F16 or BF16") + " [experts, " +
                      (form.rank == 4   ? "out, in / 32, 16]"
                       : packed         ? "out, in / 32]"
                       : form.rank == 3 ? "in, out]"
                                        : "out]"));
  }
  const int64_t out = form.part == std::string(".weight") ? tensor.shape[2] : tensor.shape[1];
  if (gate_up && out % 2 != 0) {
    throw FormatError(tensor.file + ": " + io::printable(tensor.name) + " " +
                      shape_string(tensor.shape) +
                      " has an odd number of outputs, but gate and up take turns");
  }
}

// The part of `expert` of every `turns`-th output from `turn` on.
TensorView view_of(const TensorView& tensor, const Form& form, const std::string& name,
                   int64_t expert, int64_t turns, int64_t turn) {
  TensorView view;
  view.name = name;
  view.dtype = tensor.dtype;
  view.file = tensor.file;
  const auto size = static_cast<int64_t>(dtype_bytes(tensor.dtype));
  const bool transposed = form.part == std::string(".weight");
  const int64_t out = tensor.shape[transposed ? 2 : 1];
  const int64_t in = tensor.num_elements() / tensor.shape[0] / out;
  const std::byte* base = tensor.data + expert * in * out * size;
  Strides strides{base, turns * in * size, size};
  if (transposed) strides = {base, turns * size, out * size};
  strides.base += turn * strides.row / turns;
  view.shape = {out / turns, in};
  if (form.rank == 2) {
    view.shape = {out / turns};
    strides.col = strides.row;
    strides.row = 0;
  }
  if (strides.col == size && (form.rank == 2 || strides.row == in * size)) {
    view.data = strides.base;
  } else {
    view.encoding = std::make_shared<StridedMatrix>(view, strides, base + turn * view.num_bytes());
  }
  return view;
}

}  // namespace

bool has_fused_experts(const Json& config) {
  const auto type = config.find("model_type");
  return type != config.end() && *type == "gpt_oss";
}

std::vector<TensorView> expert_views(const TensorView& tensor) {
  for (const bool gate_up : {true, false}) {
    const std::string layers = gate_up ? ".experts.gate_up_proj" : ".experts.down_proj";
    for (const Form& form : kForms) {
      if (!tensor.name.ends_with(layers + form.ending)) continue;
      check(tensor, form, gate_up);
      const std::string prefix = tensor.name.substr(0, tensor.name.rfind(layers)) + ".experts.";
      std::vector<TensorView> views;
      for (int64_t expert = 0; expert < tensor.shape[0]; ++expert) {
        const std::string of_expert = prefix + std::to_string(expert) + ".";
        const auto add = [&](const char* layer, int64_t turns, int64_t turn) {
          views.push_back(
              view_of(tensor, form, of_expert + layer + form.part, expert, turns, turn));
        };
        if (gate_up) {
          add("gate_proj", 2, 0);
          add("up_proj", 2, 1);
        } else {
          add("down_proj", 1, 0);
        }
      }
      return views;
    }
  }
  return {};
}

}  // namespace curvq
