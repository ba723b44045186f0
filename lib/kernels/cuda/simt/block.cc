#include "kernels/cuda/simt/block.h"

#include <bit>
#include <map>
#include <stdexcept>

namespace curvq::simt {

Block* running_block = nullptr;

namespace {

std::string place(Site site) {
  const std::string file = site.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(site.line());
}

}  // namespace

void thread_main(void* argument) {
  Thread& thread = *static_cast<Thread*>(argument);
  Block& block = *running_block;
  (*block.kernel_)();
  bool in_flight = !thread.open.empty();
  for (const auto& group : thread.groups) in_flight |= !group.empty();
  if (in_flight)
    block.find("async-unwaited", "exit", "a thread ends while its cp.async are under way");
  thread.state = Thread::State::kDone;
  ++block.done_;
  thread.fiber.leave();
}

Block::Block(const Settings& settings, std::vector<Emulator::Memory>& memories, Report& report,
             std::vector<Published>& published, std::vector<std::unique_ptr<Thread>>& threads,
             int num_threads, size_t shared_bytes)
    : settings_(settings),
      memories_(memories),
      report_(report),
      published_(published),
      threads_(threads),
      num_threads_(num_threads),
      shared_(shared_bytes + 16, 0xff),  // NaN in every float type
      cells_((shared_bytes + kGranule - 1) / kGranule),
      warps_(num_threads / kWarp),
      ready_((num_threads + 63) / 64) {
  shared_.resize(shared_bytes);
}

bool Block::run(Grid block_index, int linear, Grid grid_size, const std::function<void()>& kernel) {
  index = block_index;
  grid = grid_size;
  linear_ = linear;
  kernel_ = &kernel;
  random_.seed(settings_.seed * 1000003 + static_cast<uint64_t>(linear));
  running_block = this;
  for (int i = 0; i < num_threads_; ++i) {
    Thread& thread = *threads_[i];
    thread.index = i;
    thread.fences = 0;
    thread.open.clear();
    thread.groups.clear();
    thread.traffic.clear();
    thread.fiber.start(thread_main, &thread);
    wake(i);
  }
  while (done_ < num_threads_ && !stopped_) {
    const int next = next_thread();
    if (next < 0) {
      describe_deadlock();
      break;
    }
    current_ = threads_[next].get();
    current_->fiber.resume();
    if (current_->state != Thread::State::kReady) ready_[next / 64] &= ~(1ull << next % 64);
  }
  for (size_t w = 0; w < warps_.size(); ++w) count_traffic(static_cast<int>(w));
  running_block = nullptr;
  return done_ == num_threads_;
}

void Block::find(const char* kind, Site site, const std::string& what) {
  find(kind, place(site), what);
}

void Block::find(const char* kind, const std::string& where, const std::string& what) {
  for (Finding& finding : report_.findings) {
    if (finding.kind == kind && finding.where == where) {
      ++finding.times;
      return;
    }
  }
  const std::string who = current_ == nullptr ? "" : ", thread " + std::to_string(current_->index);
  report_.findings.push_back({kind, where,
                              what + " (block " + std::to_string(index.x) + "," +
                                  std::to_string(index.y) + "," + std::to_string(index.z) + who +
                                  ")"});
}

void Block::stop() {
  stopped_ = true;
  current_->fiber.leave();
}

void Block::wake(int thread) {
  threads_[thread]->state = Thread::State::kReady;
  ready_[thread / 64] |= 1ull << thread % 64;
}

int Block::next_thread() {
  const int words = static_cast<int>(ready_.size());
  if (settings_.order == Order::kForward) {
    for (int i = 0; i < words; ++i)
      if (ready_[i] != 0) return 64 * i + std::countr_zero(ready_[i]);
    return -1;
  }
  if (settings_.order == Order::kReverse) {
    for (int i = words - 1; i >= 0; --i)
      if (ready_[i] != 0) return 64 * i + 63 - std::countl_zero(ready_[i]);
    return -1;
  }
  int count = 0;
  for (const uint64_t word : ready_) count += std::popcount(word);
  if (count == 0) return -1;
  int left = static_cast<int>(random_() % static_cast<uint64_t>(count));
  for (int i = 0;; ++i) {
    const int here = std::popcount(ready_[i]);
    if (left >= here) {
      left -= here;
      continue;
    }
    uint64_t word = ready_[i];
    for (; left > 0; --left) word &= word - 1;
    return 64 * i + std::countr_zero(word);
  }
}

void Block::wait(Thread::State state, const char* operation, uint32_t line) {
  current_->state = state;
  current_->operation = operation;
  current_->line = line;
  current_->fiber.give_way();
}

void Block::describe_deadlock() {
  std::map<std::string, int> waiting;
  for (int i = 0; i < num_threads_; ++i) {
    const Thread& thread = *threads_[i];
    if (thread.state != Thread::State::kDone)
      ++waiting[std::string(thread.operation) + " of line " + std::to_string(thread.line)];
  }
  std::string text;
  for (const auto& [where, threads] : waiting)
    text += std::to_string(threads) + " threads wait at " + where + ", ";
  current_ = nullptr;
  find("deadlock", "block", text + std::to_string(done_) + " have ended");
}

void Block::barrier(Site site) {
  ++report_.counters.barriers;
  if (at_barrier_ == 0) barrier_line_ = site.line();
  if (barrier_line_ != site.line()) {
    find("divergence", site,
         "block barrier while others wait at that of line " + std::to_string(barrier_line_));
    stop();
  }
  if (++at_barrier_ < num_threads_) {
    wait(Thread::State::kAtBarrier, "sync_block", site.line());
    return;
  }
  at_barrier_ = 0;
  ++epoch_;
  for (size_t w = 0; w < warps_.size(); ++w) {
    ++warps_[w].epoch;
    count_traffic(static_cast<int>(w));
  }
  for (int i = 0; i < num_threads_; ++i) wake(i);
}

void Block::collective(const char* operation, void* argument, Site site,
                       const std::function<void(void**)>& work) {
  const int first = current_->index / kWarp * kWarp;
  Warp& warp = warps_[first / kWarp];
  if (warp.arrived == 0) {
    warp.operation = operation;
    warp.line = site.line();
  } else if (warp.operation != std::string_view(operation) || warp.line != site.line()) {
    find("divergence", site,
         std::string(operation) + " while other lanes wait at " + warp.operation + " of line " +
             std::to_string(warp.line));
    stop();
  }
  warp.arguments[current_->index - first] = argument;
  if (++warp.arrived < kWarp) {
    wait(Thread::State::kInWarp, operation, site.line());
    return;
  }
  warp.arrived = 0;
  count_traffic(first / kWarp);
  work(warp.arguments);
  for (int i = 0; i < kWarp; ++i) wake(first + i);
}

void Block::sync_warp(Site site) {
  Warp& warp = warps_[current_->index / kWarp];
  collective("sync_warp", nullptr, site, [&warp](void**) { ++warp.epoch; });
}

}  // namespace curvq::simt
