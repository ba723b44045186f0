// Compiles a function for several instruction sets; the program's loader picks one. Only loops
// whose result does not depend on the vector width may be marked (no floating point reductions).
#pragma once

// Sanitizers run before the loader could ask the CPU; clang gets the baseline instruction set.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CURVQ_SIMD_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define CURVQ_SIMD_CLONES
#endif
