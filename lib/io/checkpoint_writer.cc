#include <filesystem>
#include <stdexcept>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/checkpoint.h"
#include "curvq/io/json.h"

namespace curvq {

CheckpointWriter::CheckpointWriter(const std::string& directory,
                                   const std::vector<TensorInfo>& tensors, int64_t max_shard_bytes)
    : directory_(directory) {
  if (max_shard_bytes <= 0) {
    throw UsageError(format("max_shard_bytes is %lld, it must be positive",
                            static_cast<long long>(max_shard_bytes)));
  }
  std::vector<std::vector<TensorInfo>> shards(1);
  int64_t shard_bytes = 0;
  for (const TensorInfo& tensor : tensors) {
    const int64_t bytes = tensor.num_bytes();
    if (!shards.back().empty() && bytes > max_shard_bytes - shard_bytes) {
      shards.emplace_back();
      shard_bytes = 0;
    }
    if (!shard_of_.emplace(tensor.name, shards.size() - 1).second) {
      throw std::logic_error(directory + ": tensor name " + tensor.name + " is taken");
    }
    shards.back().push_back(tensor);
    shard_bytes += bytes;
    total_bytes_ += bytes;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shard_names_.push_back(shards.size() == 1
                               ? "model.safetensors"
                               : format("model-%05zu-of-%05zu.safetensors", i + 1, shards.size()));
    const std::string path = std::filesystem::path(directory) / shard_names_.back();
    shards_.push_back(std::make_unique<SafetensorsWriter>(
        path, std::move(shards[i]), std::map<std::string, std::string>{{"format", "pt"}}));
  }
}

void CheckpointWriter::write(const std::string& name, const void* data, int64_t bytes) {
  const auto shard = shard_of_.find(name);
  if (shard == shard_of_.end()) throw std::logic_error(directory_ + ": no tensor " + name);
  shards_[shard->second]->write(name, data, bytes);
}

void CheckpointWriter::write(const TensorData& tensor) {
  write(tensor.name, tensor.data.data(), static_cast<int64_t>(tensor.data.size()));
}

void CheckpointWriter::write(const TensorView& tensor) {
  std::vector<std::byte> decoded;
  write(tensor.name, tensor.bytes(&decoded), tensor.num_bytes());
}

void CheckpointWriter::finish() {
  for (const auto& shard : shards_) shard->finish();
  if (shards_.size() == 1) return;
  OrderedJson::object_t weight_map;  // appended to: a look-up of each key would take quadratic time
  for (const auto& [name, shard] : shard_of_) weight_map.emplace_back(name, shard_names_[shard]);
  const OrderedJson index = {{"metadata", {{"total_size", total_bytes_}}},
                             {"weight_map", std::move(weight_map)}};
  write_file(std::filesystem::path(directory_) / "model.safetensors.index.json", dump_json(index));
}

}  // namespace curvq
