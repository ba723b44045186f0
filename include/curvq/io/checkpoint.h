// Checkpoints: one safetensors file, or a model directory in the Hugging Face layout
// (config.json; model.safetensors, or shards named by model.safetensors.index.json).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "curvq/io/safetensors.h"

namespace curvq {

// Tensors of a checkpoint, over all of its shards, mapped and never copied.
//
// Opening throws UsageError if the path does not exist, FormatError for a missing shard, an index
// that names a tensor which its shard lacks, a tensor in two shards or in none, and for what
// SafetensorsFile rejects.
class Checkpoint {
 public:
  // `path`: a directory or a .safetensors file. Symlinks are followed; nothing is written.
  explicit Checkpoint(const std::string& path);

  const std::string& path() const { return path_; }
  bool is_directory() const { return is_directory_; }
  // Shards, in order of their names.
  const std::vector<SafetensorsFile>& files() const { return files_; }

  // All tensors sorted by name.
  const std::vector<const TensorView*>& tensors() const { return tensors_; }
  const TensorView* find(const std::string& name) const;
  const TensorView& at(const std::string& name) const;
  void release(const TensorView& tensor) const;
  const std::map<std::string, std::string>& metadata() const { return files_.front().metadata(); }

  // xxh3 (64 bit, hex) over names, dtypes, shapes and data.
  std::string content_hash() const;

 private:
  std::string path_;
  bool is_directory_ = false;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::pair<const TensorView*, const SafetensorsFile*>> by_name_;
  std::vector<const TensorView*> tensors_;
};

// Writes model.safetensors, or shards of at most `max_shard_bytes` with their index, into a
// directory that exists. Same contract as SafetensorsWriter.
class CheckpointWriter {
 public:
  // metadata gets {"format": "pt"}, which transformers wants.
  CheckpointWriter(const std::string& directory, const std::vector<TensorInfo>& tensors,
                   int64_t max_shard_bytes = int64_t{5} << 30);
  void write(const std::string& name, const void* data, int64_t bytes);
  void write(const TensorData& tensor);
  void finish();

 private:
  std::string directory_;
  std::vector<std::unique_ptr<SafetensorsWriter>> shards_;
  std::map<std::string, size_t> shard_of_;
  std::vector<std::string> shard_names_;
  int64_t total_bytes_ = 0;
};

}  // namespace curvq
