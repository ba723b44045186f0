#include "compress/model_output.h"

#include <filesystem>

#include "curvq/core/error.h"

namespace curvq::internal {

void check_target(const std::string& model, const std::string& target, bool overwrite) {
  namespace fs = std::filesystem;
  if (target.empty()) return;
  const std::string from = fs::weakly_canonical(model).string() + "/";
  const std::string to = fs::weakly_canonical(target).string() + "/";
  if (from.starts_with(to) || to.starts_with(from)) {
    throw UsageError(target + ": is, holds or lies in the original model " + model +
                     "; write to another directory");
  }
  if (!overwrite || !fs::is_directory(target) || fs::is_empty(target)) return;
  for (const char* report : {"/quantization_report.json", "/pruning_report.json"}) {
    if (fs::exists(target + report)) return;
  }
  throw UsageError(target +
                   ": was not written by curvq (it has no quantization_report.json), so it is not "
                   "overwritten; remove it or write to another directory");
}

ModelOutput::ModelOutput(const std::string& target, bool overwrite, const Checkpoint& source,
                         const OutputPlan& plan, int64_t max_shard_bytes, int64_t extra_bytes)
    : source_(source.path()), output_(target, AtomicOutput::Kind::kDirectory, overwrite) {
  require_disk_space(path(), plan.stored_bytes + extra_bytes + (int64_t{16} << 20));
  writer_ = std::make_unique<CheckpointWriter>(path(), plan.tensors, max_shard_bytes);
  for (const TensorView* tensor : plan.copied) {
    writer_->write(tensor->name, tensor->data, tensor->num_bytes());
    source.release(*tensor);
  }
}

void ModelOutput::finish(const OrderedJson& config) {
  writer_->finish();
  copy_other_files(source_, path());
  write_file(path() + "/config.json", dump_json(config));
}

}  // namespace curvq::internal
