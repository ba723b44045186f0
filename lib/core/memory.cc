#include "curvq/core/memory.h"

#include <cstdlib>  // defines __GLIBC__ where it is that
#include <fstream>
#include <string>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace curvq {

void keep_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

void return_freed_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;  // in kB
  }
  return 0;
}

void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }  // proc(5)

}  // namespace curvq
