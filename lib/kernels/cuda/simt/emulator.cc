#include "kernels/cuda/simt/emulator.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>

#include "kernels/cuda/simt/block.h"

namespace curvq::simt {

bool Report::has(const std::string& kind) const {
  return std::any_of(findings.begin(), findings.end(),
                     [&](const Finding& finding) { return finding.kind == kind; });
}

std::string Report::str() const {
  std::string text;
  for (const Finding& finding : findings) {
    text += finding.where + ": " + finding.kind + ": " + finding.what + ", " +
            std::to_string(finding.times) + " times\n";
  }
  return text;
}

void Emulator::readable(const void* memory, size_t bytes, const char* name) {
  memories_.push_back({static_cast<const unsigned char*>(memory), bytes, name, false, {}});
}

void Emulator::writable(void* memory, size_t bytes, const char* name) {
  memories_.push_back({static_cast<const unsigned char*>(memory), bytes, name, true, {}});
}

void Emulator::launch(Grid grid, int threads, size_t shared_bytes,
                      const std::function<void()>& kernel) {
  if (threads <= 0 || threads % kWarp != 0)
    throw std::invalid_argument("the emulator wants whole warps");
  for (Memory& memory : memories_)
    if (memory.writable) memory.cells.assign((memory.bytes + kGranule - 1) / kGranule, {});
  std::vector<std::unique_ptr<Thread>> pool(threads);
  for (auto& thread : pool) thread = std::make_unique<Thread>();
  const int blocks = grid.x * grid.y * grid.z;
  std::vector<Published> published(blocks);
  std::vector<int> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  if (settings_.order == Order::kReverse) std::reverse(order.begin(), order.end());
  std::mt19937_64 random(settings_.seed);
  if (settings_.order == Order::kShuffled) std::shuffle(order.begin(), order.end(), random);
  for (const int linear : order) {
    const Grid index{linear % grid.x, linear / grid.x % grid.y, linear / (grid.x * grid.y)};
    Block block(settings_, memories_, report_, published, pool, threads, shared_bytes);
    if (!block.run(index, linear, grid, kernel)) return;
  }
}

}  // namespace curvq::simt
