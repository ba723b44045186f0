#include "curvq/eval/verify.h"

#include <algorithm>

#include "curvq/core/error.h"
#include "eval/verify_context.h"

namespace curvq {

using Severity = VerifyProblem::Severity;

std::string VerifyProblem::line() const {
  std::string out = file;
  if (!tensor.empty()) out += (out.empty() ? "" : ": ") + tensor;
  return out.empty() ? text : out + ": " + text;
}

int64_t VerifyReport::count(Severity severity) const {
  return std::count_if(problems.begin(), problems.end(),
                       [&](const VerifyProblem& problem) { return problem.severity == severity; });
}

VerifyReport verify_checkpoint(const std::string& path) {
  namespace fs = std::filesystem;
  verify::Context context;
  context.path = path;
  std::error_code error;
  if (!fs::exists(path, error)) throw FormatError(path + ": does not exist or cannot be reached");
  context.is_directory = fs::is_directory(path, error);
  context.directory = context.is_directory ? fs::path(path) : fs::path(path).parent_path();

  check_files(&context);
  check_config(&context);
  split_experts(&context);
  check_layers(&context);
  check_fused_layers(&context);
  check_values(&context);
  check_tokens(&context);

  VerifyReport& report = context.report;
  report.num_files = static_cast<int64_t>(context.files.size());
  report.num_tensors = static_cast<int64_t>(context.tensors.size());
  report.num_quantized_layers = static_cast<int64_t>(context.layers.size());
  for (const auto& [name, tensor] : context.tensors) report.stored_bytes += tensor->num_bytes();
  return std::move(report);
}

namespace verify {

const TensorView* Context::find(const std::string& name) const {
  const auto at = tensors.find(name);
  return at == tensors.end() ? nullptr : at->second;
}

void Context::add(Severity severity, const std::string& file, const std::string& tensor,
                  const std::string& text) {
  report.problems.push_back({severity, file, tensor, text});
}

void Context::error(const std::string& file, const std::string& tensor, const std::string& text) {
  add(Severity::kError, file, tensor, text);
}

void Context::warning(const std::string& file, const std::string& tensor, const std::string& text) {
  add(Severity::kWarning, file, tensor, text);
}

void Context::add_exception(Severity severity, const std::string& file, const std::string& what) {
  std::string text = what;
  for (const std::string& start : {(directory / file).string(), file, path}) {
    if (text.compare(0, start.size() + 1, start + ":") == 0) {
      text.erase(0, text.find_first_not_of(' ', start.size() + 1));
      break;
    }
  }
  add(severity, file, "", text);
}

void Context::tensor_error(const TensorView& tensor, const std::string& text) {
  error(std::filesystem::path(tensor.file).filename(), tensor.name, text);
}

}  // namespace verify
}  // namespace curvq
