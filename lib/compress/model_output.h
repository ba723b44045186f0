// The directory that a compressed model is written to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "compress/output_plan.h"
#include "curvq/io/atomic_output.h"

namespace curvq::internal {

// Appears under its name with commit() only; until then it is a temporary beside it.
class ModelOutput {
 public:
  // Copies what the plan takes over unchanged. extra_bytes: of files beside the checkpoint. Throws
  // as AtomicOutput does, and ResourceError where the disk is too small.
  ModelOutput(const std::string& target, bool overwrite, const Checkpoint& source,
              const OutputPlan& plan, int64_t max_shard_bytes, int64_t extra_bytes = 0);

  const std::string& path() const { return output_.path(); }
  CheckpointWriter& weights() { return *writer_; }  // for the tensors that are not copied

  // Once all tensors are written: config.json, and every other file of the source's directory.
  void finish(const OrderedJson& config);
  void commit() { output_.commit(); }

 private:
  std::string source_;
  AtomicOutput output_;
  std::unique_ptr<CheckpointWriter> writer_;
};

}  // namespace curvq::internal
