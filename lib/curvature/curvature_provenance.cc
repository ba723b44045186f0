#include <charconv>

#include "curvq/core/error.h"
#include "curvq/curvature/layer_curvature.h"

namespace curvq {
namespace {

constexpr char kFormat[] = "curvq-statistics/1";

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& entry : list) text += (text.empty() ? "" : ",") + entry;
  return text;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> list;
  std::string rest = text + ",";
  for (size_t comma; (comma = rest.find(',')) != std::string::npos; rest.erase(0, comma + 1))
    list.push_back(rest.substr(0, comma));
  return list;
}

}  // namespace

std::map<std::string, std::string> CurvatureProvenance::metadata() const {
  return {{"format", kFormat},
          {"curvq_version", curvq_version},
          {"model_hash", model_hash},
          {"data_hash", joined(data_hash)},
          {"seed", joined(seed)},
          {"samples", std::to_string(samples)},
          {"loss_terms", std::to_string(loss_terms)},
          {"sample_shape", sample_shape},
          {"dtype", dtype},
          {"loss", loss},
          {"reduction", reduction},
          {"labels", labels},
          {"label_draws", std::to_string(label_draws)},
          {"weight_sharing", weight_sharing},
          {"matrix", matrix},
          {"trace", trace},
          {"diagonal", diagonal}};
}

CurvatureProvenance CurvatureProvenance::parse(const std::map<std::string, std::string>& metadata,
                                               const std::string& origin) {
  const auto text = [&](const char* name) {
    const auto entry = metadata.find(name);
    if (entry != metadata.end()) return entry->second;
    throw FormatError(origin + ": the metadata have no '" + name +
                      "'; it is not a statistics file of curvq hessian --stats");
  };
  constexpr int64_t kMost = int64_t{1} << 48;  // sums of many files are numbers still
  const auto number = [&](const char* name) {
    const std::string digits = text(name);
    int64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto [rest, error] = std::from_chars(digits.data(), end, value);
    if (error == std::errc() && rest == end && value > 0 && value <= kMost) return value;
    throw FormatError(origin + ": " + name + " of the metadata is '" + digits +
                      "', must be a number from 1 to 2^48");
  };
  if (text("format") != kFormat)
    throw FormatError(origin + ": format of the metadata is '" + text("format") + "', must be " +
                      kFormat);
  CurvatureProvenance p;
  p.curvq_version = text("curvq_version");
  p.model_hash = text("model_hash");
  p.data_hash = split(text("data_hash"));
  p.seed = split(text("seed"));
  p.samples = number("samples");
  p.loss_terms = number("loss_terms");
  p.sample_shape = text("sample_shape");
  p.dtype = text("dtype");
  p.loss = text("loss");
  p.reduction = text("reduction");
  p.labels = text("labels");
  p.label_draws = number("label_draws");
  p.weight_sharing = text("weight_sharing");
  p.matrix = text("matrix");
  p.trace = text("trace");
  p.diagonal = text("diagonal");
  return p;
}

}  // namespace curvq
