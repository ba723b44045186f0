#include "curvq/core/memory.h"

#include <cstdlib>  // defines __GLIBC__ where it is that
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

}  // namespace curvq
