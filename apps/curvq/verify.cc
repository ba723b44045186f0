// curvq verify: everything a loader would trip over.
#include "curvq/eval/verify.h"

#include "commands.h"
#include "curvq/core/log.h"
#include "curvq/report/numbers.h"

namespace curvq::cli {
namespace {

using Severity = VerifyProblem::Severity;

const char* severity_name(Severity severity) {
  switch (severity) {
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
    case Severity::kUnreadable:
      return "unreadable";
  }
  return "";
}

void declare(Options& options) {
  options.add_positional("DIR", "model directory, original or quantized, or a bare .safetensors")
      .add_threads()
      .add_example("verify Llama-3.2-1B-NVFP4");
}

int run(const Options& options, Output& output) {
  const std::string& path = options.positional("DIR");
  const VerifyReport report = verify_checkpoint(path);
  const int64_t unreadable = report.count(Severity::kUnreadable);
  const int64_t errors = report.count(Severity::kError);
  const int64_t warnings = report.count(Severity::kWarning);
  const bool ok = unreadable + errors == 0;

  output.add_checkpoint("model", path);
  OrderedJson& results = output.results();
  results["ok"] = ok;
  results["files"] = report.num_files;
  results["tensors"] = report.num_tensors;
  results["quantized_layers"] = report.num_quantized_layers;
  results["bytes"] = report.stored_bytes;
  results["errors"] = unreadable + errors;
  results["warnings"] = warnings;
  results["problems"] = OrderedJson::array();
  for (const VerifyProblem& problem : report.problems) {
    results["problems"].push_back({{"severity", severity_name(problem.severity)},
                                   {"file", problem.file},
                                   {"tensor", problem.tensor},
                                   {"text", problem.text}});
    output.text(std::string(severity_name(problem.severity)) + ": " + problem.line() + "\n");
  }
  output.text(
      format("%s: %s; %lld tensors in %lld file%s, %lld quantized layers, %s, %lld errors, "
             "%lld warnings\n",
             path.c_str(),
             ok           ? "ok"
             : unreadable ? "cannot be read"
                          : "not ok",
             static_cast<long long>(report.num_tensors), static_cast<long long>(report.num_files),
             report.num_files == 1 ? "" : "s", static_cast<long long>(report.num_quantized_layers),
             bytes_text(report.stored_bytes).c_str(), static_cast<long long>(unreadable + errors),
             static_cast<long long>(warnings)));
  return unreadable > 0 ? 3 : errors > 0 ? 6 : 0;
}

}  // namespace

const Command kVerifyCommand = {"verify", "everything a loader would trip over", declare, run};

}  // namespace curvq::cli
