#include "quantize_guard.h"

#include <filesystem>
#include <memory>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/atomic_output.h"
#include "curvq/nn/decoder.h"

namespace curvq::cli {
namespace {

namespace fs = std::filesystem;

QuantizeOptions plain(const QuantizeOptions& options, Method method) {
  QuantizeOptions out = options;
  static_cast<CaptureOptions&>(out) = CaptureOptions();
  out.capture = options.capture;
  out.method = method;
  out.gptq = {};
  static_cast<DampingOptions&>(out.gptq) = options.gptq;
  out.gptq.act_order = options.gptq.act_order;
  out.refine = {.sweeps = 0};
  out.output_factor = false;
  out.held_out = 0;
  return out;
}

void move_up(const fs::path& directory) {
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    fs::rename(entry.path(), directory.parent_path() / entry.path().filename());
  fs::remove(directory);
}

}  // namespace

QuantizeReport quantize_guarded(const std::string& model, const TokenWindows& calibration,
                                const QuantizeOptions& options,
                                const GuardedReportWriter& write_report, Guard& guard) {
  const int64_t held_out = options.held_out_windows(calibration.num_windows);
  if (held_out == 0)
    throw UsageError("the guard needs calibration windows that are held out; set --held-out");
  const TokenWindows seen = window_range(calibration, 0, calibration.num_windows - held_out);
  const TokenWindows judges = window_range(calibration, seen.num_windows, held_out);
  QuantizeOptions dry = options;
  dry.dry_run = true;
  QuantizeReport report = quantize_model(model, &calibration, dry, {});
  if (options.dry_run) {
    for (const Method method : {Method::kGptq, Method::kRtn}) {
      const QuantizeReport other = quantize_model(model, &seen, plain(dry, method), {});
      if (!report.predicted_time || !other.predicted_time) continue;
      report.predicted_time->seconds += other.predicted_time->seconds;
      report.predicted_time->cpu_seconds += other.predicted_time->cpu_seconds;
    }
    return report;
  }

  AtomicOutput output(options.out, AtomicOutput::Kind::kDirectory, options.overwrite);
  std::vector<QuantizeReport> reports;
  std::vector<std::unique_ptr<DecoderModel>> models;
  std::vector<size_t> of_model;
  const auto add = [&](const std::string& name, QuantizeOptions how, const TokenWindows& windows) {
    how.out = output.path() + "/" + std::to_string(guard.candidates.size());
    how.overwrite = false;
    if (!how.state.directory.empty()) {
      how.state.directory += "/" + std::to_string(guard.candidates.size());
      how.state.keep = true;
    }
    guard.candidates.push_back({name, {}, {}});
    reports.push_back(quantize_model(model, &windows, how, [](const auto&) { return "{}\n"; }));
    models.push_back(std::make_unique<DecoderModel>(how.out, Engine::kDequantized));
    of_model.push_back(guard.candidates.size() - 1);
  };
  add("as asked", options, calibration);
  for (const auto& [name, method] :
       {std::pair("plain gptq", Method::kGptq), std::pair("round to nearest", Method::kRtn)}) {
    try {
      add(name, plain(options, method), seen);
    } catch (const Error& error) {
      guard.candidates.back().failure = error.what();
      reports.resize(guard.candidates.size());
    }
  }
  const DecoderModel original(model, Engine::kDequantized);
  std::vector<const DecoderModel*> pointers;
  for (const auto& one : models) pointers.push_back(one.get());
  const std::vector<EvalResult> results = evaluate(pointers, judges, &original);
  for (size_t i = 0; i < results.size(); ++i) {
    guard.candidates[of_model[i]].result = results[i];
    if (results[i].kl_mean < guard.candidates[guard.kept].result.kl_mean) guard.kept = of_model[i];
  }
  models.clear();
  if (guard.kept > 0) {
    log_warning(format("%s is kept: on held-out tokens its KL is %.4g, that of what was asked %.4g",
                       guard.candidates[guard.kept].name.c_str(),
                       guard.candidates[guard.kept].result.kl_mean,
                       guard.candidates[0].result.kl_mean));
  }
  for (size_t i = 0; i < guard.candidates.size(); ++i) {
    const fs::path directory = output.path() + "/" + std::to_string(i);
    if (i != guard.kept) fs::remove_all(directory);
  }
  move_up(output.path() + "/" + std::to_string(guard.kept));
  report = std::move(reports[guard.kept]);
  write_file(output.path() + "/quantization_report.json", write_report(report, guard));
  output.commit();
  if (!options.state.directory.empty()) fs::remove_all(options.state.directory);
  return report;
}

}  // namespace curvq::cli
