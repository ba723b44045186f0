#include "curvq/formats/scheme.h"

#include <array>
#include <vector>

#include "curvq/core/error.h"
#include "curvq/core/log.h"

namespace curvq {
namespace {

template <class Enum>
struct Named {
  std::string_view name;
  Enum value;
};

constexpr std::array<Named<ScaleRule>, 6> kScaleRules = {
    {{"curvq", ScaleRule::kCurvq},
     {"compressed-tensors", ScaleRule::kCompressedTensors},
     {"modelopt", ScaleRule::kModelOpt},
     {"torchao", ScaleRule::kTorchAo},
     {"llama.cpp", ScaleRule::kLlamaCpp},
     {"four-over-six", ScaleRule::kFourOverSix}}};

constexpr std::array<Named<MxRule>, 4> kMxRules = {{{"floor", MxRule::kFloor},
                                                    {"even", MxRule::kEven},
                                                    {"ceil", MxRule::kCeil},
                                                    {"rceil", MxRule::kRceil}}};

constexpr std::array<Named<InputFormat>, 6> kInputFormats = {
    {{"none", InputFormat::kNone},
     {"nvfp4", InputFormat::kNvfp4},
     {"mxfp4", InputFormat::kMxfp4},
     {"fp8", InputFormat::kFp8},
     {"fp8-tensor", InputFormat::kFp8Tensor},
     {"int8", InputFormat::kInt8}}};

template <class Table>
auto parse_named(const Table& table, const char* what, std::string_view name) {
  std::string known;
  for (const auto& entry : table) {
    if (entry.name == name) return entry.value;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw UsageError("unknown " + std::string(what) + " '" + std::string(name) +
                   "'; known: " + known);
}

template <class Table, class Enum>
std::string_view name_of(const Table& table, Enum value) {
  for (const auto& entry : table) {
    if (entry.value == value) return entry.name;
  }
  return "invalid";
}

bool is_scale_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// Input formats that vLLM has kernels for; transformers with compressed-tensors takes them all.
std::vector<InputFormat> allowed_inputs(const Scheme& scheme) {
  if (scheme.scale_type == ScaleType::kE4M3) return {InputFormat::kNvfp4};
  if (scheme.scale_type == ScaleType::kE8M0) return {InputFormat::kMxfp4};
  if (!scheme.symmetric) return {};
  if (scheme.element == ElementType::kInt && scheme.bits == 4)
    return scheme.group_size > 0 ? std::vector{InputFormat::kFp8} : std::vector<InputFormat>{};
  if (scheme.group_size > 0) return {};
  if (scheme.element == ElementType::kInt) return {InputFormat::kInt8};
  return {InputFormat::kFp8, InputFormat::kFp8Tensor};
}

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Scheme Scheme::nvfp4() { return Scheme{}; }

Scheme Scheme::mxfp4() {
  Scheme scheme;
  scheme.scale_type = ScaleType::kE8M0;
  scheme.group_size = 32;
  return scheme;
}

Scheme Scheme::int4(int64_t group_size, bool symmetric) {
  Scheme scheme;
  scheme.element = ElementType::kInt;
  scheme.scale_type = ScaleType::kFloat;
  scheme.group_size = group_size;
  scheme.symmetric = symmetric;
  return scheme;
}

Scheme Scheme::int8(int64_t group_size, bool symmetric) {
  Scheme scheme = int4(group_size, symmetric);
  scheme.bits = 8;
  return scheme;
}

Scheme Scheme::fp8(int64_t group_size) {
  Scheme scheme = int8(group_size);
  scheme.element = ElementType::kE4M3;
  return scheme;
}

Scheme Scheme::parse(std::string_view name) {
  if (name == "nvfp4") return nvfp4();
  if (name == "mxfp4") return mxfp4();
  if (name == "int4") return int4();
  if (name == "int8") return int8();
  if (name == "fp8") return fp8();
  throw UsageError("unknown scheme '" + std::string(name) +
                   "'; known: nvfp4, mxfp4, int4, int8, fp8");
}

std::string Scheme::name() const {
  if (element == ElementType::kE2M1) return scale_type == ScaleType::kE8M0 ? "mxfp4" : "nvfp4";
  if (element == ElementType::kE4M3) return "fp8";
  return bits == 4 ? "int4" : "int8";
}

std::string Scheme::describe() const {
  std::string text = name();
  if (scale_type == ScaleType::kFloat) {
    text += group_size == 0 ? " channel" : format(" g%ld", long{group_size});
  }
  if (!symmetric) text += " asymmetric";
  if (scale_type == ScaleType::kE8M0 && mx_rule != MxRule::kEven) {
    text.append(" ").append(mx_rule_name(mx_rule));
  }
  if (rule != ScaleRule::kCurvq) text.append(" ").append(scale_rule_name(rule));
  if (inputs != InputFormat::kNone) text.append(", inputs ").append(input_format_name(inputs));
  return text;
}

void Scheme::validate() const {
  const std::string who = name();
  if (bits != 4 && bits != 8) throw UsageError(format("bits %d; allowed: 4, 8", bits));
  if (element == ElementType::kE2M1 && bits != 4) {
    throw UsageError(format("bits %d of an e2m1 element; allowed: 4", bits));
  }
  if (element == ElementType::kE4M3 && bits != 8) {
    throw UsageError(format("bits %d of an e4m3 element; allowed: 8", bits));
  }
  if ((element == ElementType::kE2M1) == (scale_type == ScaleType::kFloat)) {
    throw UsageError(element == ElementType::kE2M1
                         ? "scale_type float of an e2m1 element; allowed: e8m0, e4m3"
                         : "scale_type of " + who + " is not float; allowed: float");
  }
  if (scale_type == ScaleType::kE4M3 && group_size != 16) {
    throw UsageError(format("group_size %ld of nvfp4; allowed: 16", long{group_size}));
  }
  if (scale_type == ScaleType::kE8M0 && group_size != 32) {
    throw UsageError(format("group_size %ld of mxfp4; allowed: 32", long{group_size}));
  }
  if (group_size < 0) {
    throw UsageError(format("group_size %ld; allowed: 0 (a whole row) or more", long{group_size}));
  }
  if (!symmetric && element != ElementType::kInt) {
    throw UsageError("symmetric false of " + who + "; only integers have zero points");
  }
  if (!is_scale_dtype(scale_dtype)) {
    throw UsageError("scale_dtype " + std::string(dtype_name(scale_dtype)) +
                     "; allowed: F32, F16, BF16");
  }
  if (!is_scale_dtype(source_dtype)) {
    throw UsageError("source_dtype " + std::string(dtype_name(source_dtype)) +
                     "; allowed: F32, F16, BF16");
  }
  if (inputs == InputFormat::kNone) return;
  std::string allowed = "none";
  for (const InputFormat format : allowed_inputs(*this)) {
    if (format == inputs) return;
    allowed.append(", ").append(input_format_name(format));
  }
  Scheme weights = *this;
  weights.inputs = InputFormat::kNone;
  throw UsageError(format(
      "inputs %s to weights of %s, which no server has a kernel for; allowed: %s",
      std::string(input_format_name(inputs)).c_str(), weights.describe().c_str(), allowed.c_str()));
}

int64_t Scheme::num_groups(int64_t cols) const {
  if (group_size == 0) return 1;
  if (divides(cols)) return cols / group_size;
  std::string remedy;
  if (scale_type == ScaleType::kFloat) {
    for (const int64_t size : {256, 128, 64, 32, 16}) {
      if (cols % size == 0) remedy += (remedy.empty() ? "" : ", ") + std::to_string(size);
    }
    remedy = (remedy.empty() ? "no usual size divides it" : "sizes that divide it: " + remedy) +
             "; 0 gives each row one scale";
  } else {
    remedy = "keep this layer as it is, or use int4, int8 or fp8 with one scale a row";
  }
  throw UsageError(format("group size %ld of %s does not divide %ld columns; %s", long{group_size},
                          name().c_str(), long{cols}, remedy.c_str()));
}

int64_t Scheme::stored_bytes(int64_t rows, int64_t cols) const {
  const int64_t groups = num_groups(cols);
  if (scale_type == ScaleType::kE4M3)
    return rows * (cols / 2 + groups) + (inputs == InputFormat::kNvfp4 ? 8 : 4);
  if (scale_type == ScaleType::kE8M0) return rows * (cols / 2 + groups);
  // Integers and their zero points lie in 32-bit words, codes along a row, zero points along a
  // column; FP8 codes are bytes.
  const bool packed = element == ElementType::kInt && inputs != InputFormat::kInt8;
  const int64_t code_bytes = packed ? round_up(cols * bits, 32) / 8 : cols;
  const int64_t zero_point_bytes = symmetric ? 0 : round_up(rows * bits, 32) / 8 * groups;
  const int64_t scale_bytes = groups * static_cast<int64_t>(dtype_bytes(scale_dtype));
  const int64_t input_bytes =
      inputs == InputFormat::kFp8Tensor ? static_cast<int64_t>(dtype_bytes(scale_dtype)) : 0;
  return rows * (code_bytes + scale_bytes) + zero_point_bytes + input_bytes;
}

double Scheme::bits_per_weight(int64_t rows, int64_t cols) const {
  return 8.0 * static_cast<double>(stored_bytes(rows, cols)) /
         (static_cast<double>(rows) * static_cast<double>(cols));
}

ScaleRule parse_scale_rule(std::string_view name) {
  return parse_named(kScaleRules, "scale rule", name);
}
std::string_view scale_rule_name(ScaleRule rule) { return name_of(kScaleRules, rule); }

MxRule parse_mx_rule(std::string_view name) { return parse_named(kMxRules, "mx rule", name); }
std::string_view mx_rule_name(MxRule rule) { return name_of(kMxRules, rule); }

InputFormat parse_input_format(std::string_view name) {
  return parse_named(kInputFormats, "input format", name);
}
std::string_view input_format_name(InputFormat format) { return name_of(kInputFormats, format); }

}  // namespace curvq
