// The GGUF file format, versions 2 and 3 (little-endian): typed metadata, tensor descriptions,
// data. Source: the format's description in the ggml project.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "curvq/formats/ggml_type.h"
#include "curvq/io/json.h"
#include "curvq/io/tensor.h"

namespace curvq {

struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::kF32;
  std::vector<int64_t> shape;  // row-major, outermost first: the file's dimensions reversed
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};

// A memory-mapped, validated file. Safe to read from several threads.
//
// The constructor throws ResourceError if the file cannot be opened, UnsupportedError for another
// version, byte order or tensor type, and FormatError, naming file, field and numbers, for: counts,
// lengths and sizes that the file is too short for; names that are empty, too long, twice or not
// UTF-8; an unknown type of value; a bool that is neither 0 nor 1; arrays nested more than 4 deep
// or of more than 2^25 elements in all; an alignment that is no power of two; rows that are no
// whole blocks; tensors that do not follow each other, padded to the alignment; data behind the
// last.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);
  ~GgufFile();
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;

  const std::string& path() const;
  uint32_t version() const;
  // An object of all values by their keys. float32 values are given as the shortest decimal that
  // rounds to them.
  const Json& metadata() const;
  // In the order of their data.
  const std::vector<GgufTensor>& tensors() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A GGUF model, of one file or split into several (NAME-00001-of-00003.gguf), as the tensors of a
// model directory.
//
// Of the architecture llama, tensors have their names in transformers, and the rows of q and k,
// which llama.cpp interleaves for its rotary embedding, are put back in their order; other
// architectures keep the file's names and orders. Blocks are presented as float32, decoded when
// read; a scale beside a tensor (NAME.scale) is multiplied in, and it and NAME.input_scale are not
// listed; nor is rope_freqs.weight, which is part of the configuration.
class GgufModel {
 public:
  // `path`: any part of a split model. Throws what GgufFile throws, and FormatError for parts that
  // are missing or do not belong together.
  explicit GgufModel(const std::string& path);

  const std::string& path() const { return files_.front().path(); }
  const Json& metadata() const { return files_.front().metadata(); }
  // general.architecture; empty if there is none.
  const std::string& architecture() const { return architecture_; }
  size_t num_files() const { return files_.size(); }
  // As the files hold them.
  const std::vector<GgufFile>& files() const { return files_; }
  // As a model directory would.
  const std::vector<TensorView>& tensors() const { return tensors_; }

 private:
  void add_tensors();

  std::vector<GgufFile> files_;
  std::string architecture_;
  std::vector<TensorView> tensors_;
};

}  // namespace curvq
