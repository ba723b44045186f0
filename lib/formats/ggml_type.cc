#include "curvq/formats/ggml_type.h"

#include <stdexcept>

namespace curvq {
namespace {

constexpr GgmlTypeInfo kTypes[] = {
    {GgmlType::kF32, "F32", 1, 4},         {GgmlType::kF16, "F16", 1, 2},
    {GgmlType::kBF16, "BF16", 1, 2},       {GgmlType::kF64, "F64", 1, 8},
    {GgmlType::kI8, "I8", 1, 1},           {GgmlType::kI16, "I16", 1, 2},
    {GgmlType::kI32, "I32", 1, 4},         {GgmlType::kI64, "I64", 1, 8},
    {GgmlType::kQ4_0, "Q4_0", 32, 18},     {GgmlType::kQ4_1, "Q4_1", 32, 20},
    {GgmlType::kQ5_0, "Q5_0", 32, 22},     {GgmlType::kQ5_1, "Q5_1", 32, 24},
    {GgmlType::kQ8_0, "Q8_0", 32, 34},     {GgmlType::kQ2_K, "Q2_K", 256, 84},
    {GgmlType::kQ3_K, "Q3_K", 256, 110},   {GgmlType::kQ4_K, "Q4_K", 256, 144},
    {GgmlType::kQ5_K, "Q5_K", 256, 176},   {GgmlType::kQ6_K, "Q6_K", 256, 210},
    {GgmlType::kIQ4_NL, "IQ4_NL", 32, 18}, {GgmlType::kMXFP4, "MXFP4", 32, 17},
    {GgmlType::kNVFP4, "NVFP4", 64, 36},
};

}  // namespace

std::optional<GgmlTypeInfo> find_ggml_type(uint32_t number) {
  for (const GgmlTypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == number) return info;
  }
  return std::nullopt;
}

const GgmlTypeInfo& ggml_type_info(GgmlType type) {
  for (const GgmlTypeInfo& info : kTypes) {
    if (info.type == type) return info;
  }
  throw std::logic_error("no such ggml type");
}

std::string ggml_type_names() {
  std::string names;
  for (const GgmlTypeInfo& info : kTypes)
    names += (names.empty() ? "" : ", ") + std::string(info.name);
  return names;
}

}  // namespace curvq
