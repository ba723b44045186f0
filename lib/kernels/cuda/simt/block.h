// One block while it is emulated: its threads, warps, shared memory and what is known of each byte.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include "kernels/cuda/simt/emulator.h"
#include "kernels/cuda/simt/fiber.h"

namespace curvq::simt {

using Site = std::source_location;  // the line of a kernel that an operation stands on

constexpr int kWarp = 32;
constexpr uint32_t kGranule = 2;  // bytes of shared and global memory that share a state

// Who touched a granule, and in which interval between barriers.
struct Access {
  int32_t thread = -1;
  uint32_t block_epoch = 0, warp_epoch = 0;
};

struct SharedCell {
  Access write;
  Access reads[3];         // the last; another lane of its warp; another warp
  int32_t in_flight = -1;  // thread whose cp.async is on its way here
  bool defined = false;
};

struct AsyncCopy {
  uint32_t to;
  const unsigned char* from;
  int bytes, valid;
  Site site;
};

// An access that is counted: which instruction of which line, how often that lane was there since
// the warp last met.
struct Traffic {
  uint32_t line;
  bool global, store;
  int bytes;
  uintptr_t address;
};

struct Thread {
  enum class State { kReady, kInWarp, kAtBarrier, kDone };
  int index = 0;
  State state = State::kReady;
  const char* operation = "";
  uint32_t line = 0;
  uint32_t fences = 0;
  std::vector<AsyncCopy> open;                 // not committed yet
  std::vector<std::vector<AsyncCopy>> groups;  // committed, not waited for
  std::vector<Traffic> traffic;
  Fiber fiber;
};

struct Warp {
  int arrived = 0;
  const char* operation = nullptr;
  uint32_t line = 0, epoch = 0;
  void* arguments[kWarp] = {};
};

// What a block published to others: an atomic after fences.
struct Published {
  int32_t thread = -1;
  uint32_t epoch = 0;
  std::vector<uint32_t> fences;  // of each thread at that time; empty: nothing
};

class Block {
 public:
  Block(const Settings& settings, std::vector<Emulator::Memory>& memories, Report& report,
        std::vector<Published>& published, std::vector<std::unique_ptr<Thread>>& threads,
        int num_threads, size_t shared_bytes);

  // Runs the kernel in all threads. False if they stopped before their end.
  bool run(Grid index, int linear, Grid grid, const std::function<void()>& kernel);

  // What the wrappers of host_wrappers.h call.
  Thread& current() { return *current_; }
  Grid index, grid;
  void* shared(uint32_t offset) { return shared_.data() + offset; }
  // Checks an access and counts it; false if memory must not be touched.
  bool shared_access(uint32_t offset, int bytes, bool write, Site site);
  bool global_access(const void* address, int bytes, bool write, bool coherent, Site site);
  void async_copy(uint32_t to, const void* from, int bytes, int valid, Site site);
  void async_commit();
  void async_wait(int left);
  void barrier(Site site);
  void fence() { ++current_->fences; }
  uint32_t atomic_add(uint32_t* address, uint32_t value, Site site);
  // All 32 lanes meet; the last calls work(arguments of the lanes).
  void collective(const char* operation, void* argument, Site site,
                  const std::function<void(void**)>& work);
  void sync_warp(Site site);
  void count_matrix_rows(void** addresses);  // of ldmatrix, 32 offsets
  Counters& counters() { return report_.counters; }

 private:
  friend void thread_main(void* thread);
  void find(const char* kind, Site site, const std::string& what);
  void find(const char* kind, const std::string& where, const std::string& what);
  [[noreturn]] void stop();
  bool concurrent(const Access& other) const;
  void check_cell(SharedCell& cell, uint32_t offset, bool write, Site site);
  void touch_async(const AsyncCopy& copy, int in_flight);
  void land(const AsyncCopy& copy);
  void check_global_cell(Emulator::GlobalCell& cell, bool write, bool coherent, Site site,
                         const char* name);
  void wait(Thread::State state, const char* operation, uint32_t line);
  void wake(int thread);
  int next_thread();
  void describe_deadlock();
  void count_traffic(int warp);

  const Settings& settings_;
  std::vector<Emulator::Memory>& memories_;
  Report& report_;
  std::vector<Published>& published_;
  std::vector<std::unique_ptr<Thread>>& threads_;
  int num_threads_;
  std::vector<unsigned char> shared_;
  std::vector<SharedCell> cells_;
  std::vector<Warp> warps_;
  std::vector<uint64_t> ready_;  // a bit for each thread that can run
  std::mt19937_64 random_;
  const std::function<void()>* kernel_ = nullptr;
  Thread* current_ = nullptr;
  int linear_ = 0, at_barrier_ = 0, done_ = 0;
  uint32_t epoch_ = 0, barrier_line_ = 0;
  bool stopped_ = false;
};

// The block that runs now.
extern Block* running_block;

}  // namespace curvq::simt
