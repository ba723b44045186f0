// Output that appears whole or not at all.
#pragma once

#include <string>

namespace curvq {

// A directory (or file) written under a temporary name beside its final one and moved into place by
// commit(). Without commit() the destructor removes what was written. A process that is killed
// leaves only the temporary name `.<name>.curvq-<pid>`, which the next run for the same target
// removes if its process is gone.
class AtomicOutput {
 public:
  enum class Kind { kFile, kDirectory };

  // Throws UsageError if `target` exists and is not an empty directory, unless `overwrite` (then
  // it is replaced at commit; a target that contains the current directory or is a symlink to
  // elsewhere is refused); ResourceError if its parent cannot be written. Missing parents are made.
  AtomicOutput(const std::string& target, Kind kind, bool overwrite);
  ~AtomicOutput();
  AtomicOutput(const AtomicOutput&) = delete;
  AtomicOutput& operator=(const AtomicOutput&) = delete;

  // Where to write.
  const std::string& path() const { return temporary_; }
  // Syncs and renames. Throws ResourceError.
  void commit();

 private:
  std::string target_, temporary_;
  Kind kind_;
  bool committed_ = false;
};

// Writes a whole file atomically.
void write_file(const std::string& path, const std::string& content);
// Reads a whole file; throws ResourceError naming it.
std::string read_file(const std::string& path);

// Throws ResourceError naming bytes wanted and free if the file system of `path` (which need not
// exist yet) has less than `bytes` free.
void require_disk_space(const std::string& path, int64_t bytes);

}  // namespace curvq
