// Checkpoints: one safetensors file, a model directory in the Hugging Face layout (config.json;
// model.safetensors, or shards named by model.safetensors.index.json), or a GGUF.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "curvq/io/safetensors.h"

namespace curvq {

class GgufModel;

// Tensors of a checkpoint, over all of its shards, mapped and never copied.
//
// A directory holds model.safetensors or model.safetensors.index.json (looked for in this order)
// or, failing both, is taken to consist of the *.safetensors files in it.
//
// Of a GGUF, whether one file or split, the tensors of a known architecture have the names, and the
// rows of q and k the order, that they have in a model directory; blocks of codes are there as the
// float32 values that they stand for (see curvq/io/gguf.h). Of tensors that hold all experts of a
// block each expert's part is there (see curvq/io/expert_tensors.h).
//
// Opening throws UsageError if the path does not exist, FormatError for a directory without
// weights, a missing shard, an index that names a tensor which its shard lacks or a file outside of
// the directory, a tensor in two shards, and for what SafetensorsFile rejects. A tensor that the
// index does not name is there all the same, with a warning, as loaders take whole shards.
class Checkpoint {
 public:
  // `path`: a directory, a .safetensors file or a GGUF (of a split one, any part). Symlinks are
  // followed; nothing is written.
  explicit Checkpoint(const std::string& path);

  const std::string& path() const { return path_; }
  bool is_directory() const { return is_directory_; }
  bool is_gguf() const { return gguf_ != nullptr; }
  size_t num_files() const;
  // Shards, in order of their names; none of a GGUF.
  const std::vector<SafetensorsFile>& files() const { return files_; }

  // All tensors sorted by name.
  const std::vector<const TensorView*>& tensors() const { return tensors_; }
  const TensorView* find(const std::string& name) const;
  // As above, but throws FormatError naming the checkpoint and the nearest names.
  const TensorView& at(const std::string& name) const;
  // See SafetensorsFile::release.
  void release(const TensorView& tensor) const;
  // Of the first shard; empty for a GGUF.
  const std::map<std::string, std::string>& metadata() const;

  // xxh3 (64 bit, hex) over names, dtypes, shapes and elements, in the order of the names; does not
  // depend on how tensors are spread over shards or encoded. Reads everything once.
  std::string content_hash() const;

 private:
  void split_experts();

  std::string path_;
  bool is_directory_ = false;
  std::vector<SafetensorsFile> files_;
  std::shared_ptr<const GgufModel> gguf_;
  std::shared_ptr<const std::vector<TensorView>> experts_;  // views of them
  std::map<std::string, const TensorView*> by_name_;
  std::vector<const TensorView*> tensors_;
};

// Writes model.safetensors, or shards of at most `max_shard_bytes` of data (a larger tensor gets
// its own) with their index, into a directory that exists. Same contract as SafetensorsWriter.
class CheckpointWriter {
 public:
  // metadata gets {"format": "pt"}, which transformers wants.
  CheckpointWriter(const std::string& directory, const std::vector<TensorInfo>& tensors,
                   int64_t max_shard_bytes = int64_t{5} << 30);
  void write(const std::string& name, const void* data, int64_t bytes);
  void write(const TensorData& tensor);
  void write(const TensorView& tensor);
  void finish();

 private:
  std::string directory_;
  std::vector<std::unique_ptr<SafetensorsWriter>> shards_;
  std::map<std::string, size_t> shard_of_;
  std::vector<std::string> shard_names_;
  int64_t total_bytes_ = 0;
};

}  // namespace curvq
