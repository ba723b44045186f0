#include "compress/scratch_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "curvq/core/error.h"
#include "curvq/io/atomic_output.h"

namespace curvq::internal {

ScratchFile::ScratchFile(const std::string& directory, int64_t bytes) : directory_(directory) {
  require_disk_space(directory, bytes);
  std::string name = directory + "/scratch-XXXXXX";
  file_ = ::mkstemp(name.data());
  if (file_ < 0) {
    throw ResourceError(directory + ": cannot make a temporary file: " + std::strerror(errno));
  }
  ::unlink(name.c_str());
}

ScratchFile::~ScratchFile() { ::close(file_); }

torch::Tensor ScratchFile::zeros(int64_t rows, int64_t cols) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t bytes = rows * cols * static_cast<int64_t>(sizeof(float));
  const int64_t begin = size_, end = begin + (bytes + page - 1) / page * page;
  // Written out rather than left sparse: a full disk shows here, not as a fault on the mapping.
  const int status = ::posix_fallocate(file_, begin, end - begin);
  if (status != 0) {
    throw ResourceError(directory_ + ": cannot hold " + std::to_string(bytes) +
                        " bytes of curvature: " + std::strerror(status));
  }
  size_ = end;
  const size_t length = static_cast<size_t>(end - begin);
  void* data = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file_, begin);
  if (data == MAP_FAILED)
    throw ResourceError(directory_ + ": cannot map a temporary file: " + std::strerror(errno));
  return torch::from_blob(
      data, {rows, cols}, [length](void* at) { ::munmap(at, length); }, torch::kFloat32);
}

void ScratchFile::put_away(const torch::Tensor& tensor) {
  ::madvise(tensor.data_ptr(), tensor.nbytes(), MADV_DONTNEED);
}

}  // namespace curvq::internal
