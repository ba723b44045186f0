// Runs kernels that are written against simt.h on the CPU, and watches them. Host only.
//
// Each CUDA thread is a fiber, and exactly one runs at a time. It runs until it meets a warp
// collective (mma, ldmatrix, shfl, syncwarp), a block barrier, or its end; who runs next is the
// order of the settings. Blocks run one after another. Two accesses to the same shared memory by
// different threads are ordered only by a block barrier between them or, inside a warp, by
// sync_warp: anything else is a race, whether or not this run computed what was meant.
//
// What it cannot show: that the hardware does what PTX says, and how long anything takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace curvq::simt {

enum class Order { kForward, kReverse, kShuffled };
// When a cp.async writes shared memory: as it is issued, or at the wait that covers it.
enum class Landing { kEarly, kLate };

struct Settings {
  Order order = Order::kForward;  // of threads, and of blocks
  Landing landing = Landing::kLate;
  uint64_t seed = 1;   // of kShuffled
  bool count = false;  // fill the counters (slower)
};

// A mistake of a kernel: its kind, where first, how often.
//   shared-race, async-race (touched while a cp.async is under way), global-race (between blocks),
//   shared-uninitialised, shared-bounds, shared-alignment, global-bounds, global-alignment,
//   global-read-only, global-not-coherent (a read through the constant cache of what this launch
//   wrote), async-unwaited, divergence (lanes of a warp, or threads of a block, wait at different
//   operations), deadlock
struct Finding {
  std::string kind, where, what;
  int64_t times = 1;
};

// Of shared memory in wavefronts of 128 bytes (a collision of banks costs one more); of global
// memory in sectors of 32 bytes. `ideal` is what the same bytes need at least.
struct Counters {
  int64_t shared_wavefronts = 0, shared_ideal = 0;
  int64_t load_sectors = 0, load_ideal = 0, load_bytes = 0;
  int64_t store_sectors = 0, store_ideal = 0, store_bytes = 0;
  int64_t mma = 0, barriers = 0;
};

struct Report {
  std::vector<Finding> findings;
  Counters counters;
  bool has(const std::string& kind) const;
  std::string str() const;  // a line a finding
};

struct Grid {
  int x = 1, y = 1, z = 1;
};

class Emulator {
 public:
  explicit Emulator(const Settings& settings) : settings_(settings) {}

  // Global memory that kernels may touch; must stay alive while they run. Not more than is passed
  // here: an access past the end is found even where the host's allocation goes on.
  void readable(const void* memory, size_t bytes, const char* name);
  void writable(void* memory, size_t bytes, const char* name);

  // Runs all blocks. `threads` is a multiple of 32. A block that deadlocks or diverges ends the
  // launch; see report().
  void launch(Grid grid, int threads, size_t shared_bytes, const std::function<void()>& kernel);

  const Report& report() const { return report_; }

  // What is known of a writable granule of two bytes.
  struct GlobalCell {
    int32_t block = -1, thread = -1;
    uint32_t epoch = 0, fences = 0;
  };
  struct Memory {
    const unsigned char* begin;
    size_t bytes;
    const char* name;
    bool writable;
    std::vector<GlobalCell> cells;
  };

 private:
  Settings settings_;
  Report report_;
  std::vector<Memory> memories_;
};

}  // namespace curvq::simt
