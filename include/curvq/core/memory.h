// How memory that is freed goes back to the operating system, and what is resident.
#pragma once

#include <cstdint>

namespace curvq {

// For programs that go through a model: arrays of some megabytes come and go all the time, and
// fetching each from the system anew costs page faults, so that they are kept; larger ones go back
// at once. Of the whole process, so a library never calls it. Nothing where the C library is not
// glibc.
void keep_freed_memory();

// Gives back what is free, between phases that need different sizes.
void return_freed_memory();

// The most that was resident since the last reset_peak_resident(), or since the process began where
// the system cannot reset it (Linux 4.0 and later can). 0 where it does not tell. The reset also
// lowers what getrusage() calls the maximum.
int64_t peak_resident_bytes();
void reset_peak_resident();

}  // namespace curvq
