// Output that appears whole or not at all.
#pragma once

#include <cstdint>
#include <string>

namespace curvq {

// A directory (or file) written under a temporary name beside its final one and moved into place by
// commit(). Without commit() the destructor removes what was written. A process that is killed
// leaves only the temporary name `.<name>.curvq-<pid>`, which the next run for the same target
// removes if its process is gone. A process has at most one for a target at a time.
class AtomicOutput {
 public:
  enum class Kind { kFile, kDirectory };

  // Throws UsageError if `target` exists and is not an empty directory, unless `overwrite` (then
  // it is replaced at commit), and in any case if it contains the current directory, is a symlink,
  // or is a file where a directory is to be written or the reverse; ResourceError if its parent
  // cannot be written. Missing parents are made.
  AtomicOutput(const std::string& target, Kind kind, bool overwrite);
  ~AtomicOutput();
  AtomicOutput(const AtomicOutput&) = delete;
  AtomicOutput& operator=(const AtomicOutput&) = delete;

  // Where to write. Exists and is empty.
  const std::string& path() const { return temporary_; }
  // Syncs and renames. Throws ResourceError; what was there before is then unchanged, and the
  // finished output stays under its temporary name, which the message tells.
  void commit();

 private:
  std::string target_, temporary_;
  Kind kind_;
  bool overwrite_;
  bool keep_ = false;  // nothing for the destructor to remove
};

// Writes a whole file atomically, in place of one that may exist (the one a symlink points to). A
// device or pipe (/dev/stdout) is written to as it is. Throws ResourceError.
void write_file(const std::string& path, const std::string& content);
// Reads a whole file; throws ResourceError naming it.
std::string read_file(const std::string& path);

// Throws ResourceError naming bytes wanted and free if the file system of `path` (which need not
// exist yet) has less than `bytes` free.
void require_disk_space(const std::string& path, int64_t bytes);

}  // namespace curvq
