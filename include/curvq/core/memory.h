// How memory that is freed goes back to the operating system.
#pragma once

namespace curvq {

// For programs that go through a model: arrays of some megabytes come and go all the time, and
// fetching each from the system anew costs page faults, so that they are kept; larger ones go back
// at once. Of the whole process, so a library never calls it. Nothing where the C library is not
// glibc.
void keep_freed_memory();

// Gives back what is free, between phases that need different sizes.
void return_freed_memory();

}  // namespace curvq
