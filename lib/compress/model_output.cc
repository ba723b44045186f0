#include "compress/model_output.h"

#include "curvq/io/model_files.h"

namespace curvq::internal {

ModelOutput::ModelOutput(const std::string& target, bool overwrite, const Checkpoint& source,
                         const OutputPlan& plan, int64_t max_shard_bytes, int64_t extra_bytes)
    : source_(source.path()), output_(target, AtomicOutput::Kind::kDirectory, overwrite) {
  require_disk_space(path(), plan.stored_bytes + extra_bytes + (int64_t{16} << 20));
  writer_ = std::make_unique<CheckpointWriter>(path(), plan.tensors, max_shard_bytes);
  for (const TensorView* tensor : plan.copied) {
    writer_->write(*tensor);
    source.release(*tensor);
  }
}

void ModelOutput::finish(const OrderedJson& config) {
  writer_->finish();
  copy_model_files(source_, path());
  write_file(path() + "/config.json", dump_json(config));
}

}  // namespace curvq::internal
