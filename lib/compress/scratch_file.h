// Tensors that wait on disk until they are needed.
#pragma once

#include <torch/torch.h>

#include <string>

namespace curvq::internal {

// A file without a name: the system frees it with the last tensor, however the program ends.
class ScratchFile {
 public:
  // Throws ResourceError if `directory` cannot hold `bytes` more.
  ScratchFile(const std::string& directory, int64_t bytes);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Float32 zeros, mapped from the file; may outlive it.
  torch::Tensor zeros(int64_t rows, int64_t cols);

  // Takes a tensor of this file out of memory until it is touched again.
  static void put_away(const torch::Tensor& tensor);

 private:
  std::string directory_;
  int file_;
  int64_t size_ = 0;
};

}  // namespace curvq::internal
