// The safetensors file format: an 8-byte little-endian header length, a JSON header, the data.
// Source: the format's description in the safetensors project's README.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "curvq/io/tensor.h"

namespace curvq {

// A memory-mapped, validated file. Safe to read from several threads.
//
// The constructor throws ResourceError if the file cannot be opened and FormatError, naming file,
// tensor and numbers, for: a header that is longer than the file or than 100 MB, not JSON, nested
// too deeply, with duplicate names; an unknown dtype; negative, overflowing or non-integer sizes;
// offsets out of range, overlapping, leaving gaps, or not equal to shape times dtype; a file that
// is longer or shorter than its header says.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::string& path() const;
  // In the order of their data.
  const std::vector<TensorView>& tensors() const;
  // nullptr if there is none of that name.
  const TensorView* find(const std::string& name) const;
  // As above, but throws FormatError naming the file and the nearest names.
  const TensorView& at(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const;
  // Tells the kernel that the pages of this tensor are not needed for now, so that they leave the
  // resident memory; they come back when read.
  void release(const TensorView& tensor) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes one file whose tensors are known beforehand. Data may be written in any order; the file
// has its full size from the start, so that a full disk is known at once (ResourceError naming
// bytes wanted and free).
class SafetensorsWriter {
 public:
  // Tensors are laid out in the given order, but those of larger elements first, so that each is
  // aligned to its element (readers that map the file want that); the header is padded with spaces
  // to 8 bytes. An existing file is overwritten. Throws std::logic_error for duplicate names,
  // UsageError for names or metadata that are not UTF-8.
  SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // `bytes` must be the tensor's size; each tensor is written exactly once (else std::logic_error).
  void write(const std::string& name, const void* data, int64_t bytes);
  void write(const TensorView& tensor);
  // Flushes to disk; throws std::logic_error if a tensor is missing. Without finish() the file is
  // removed by the destructor.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace curvq
