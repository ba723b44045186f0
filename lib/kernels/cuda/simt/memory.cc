// Shared and global memory of the emulator: bounds, alignment, initialisation, races.
#include <algorithm>
#include <cstring>

#include "kernels/cuda/simt/block.h"

namespace curvq::simt {
namespace {

bool aligned(uintptr_t address, int bytes) { return address % static_cast<uintptr_t>(bytes) == 0; }

std::string thread_name(int thread) { return "thread " + std::to_string(thread); }

}  // namespace

// No barrier lies between `other` and what the current thread does now.
bool Block::concurrent(const Access& other) const {
  const int thread = current_->index;
  if (other.thread < 0 || other.thread == thread || other.block_epoch != epoch_) return false;
  const bool same_warp = other.thread / kWarp == thread / kWarp;
  return !(same_warp && other.warp_epoch != warps_[thread / kWarp].epoch);
}

void Block::check_cell(SharedCell& cell, uint32_t offset, bool write, Site site) {
  const int thread = current_->index;
  const auto race = [&](const char* with, const Access& other) {
    find("shared-race", site,
         std::string(write ? "writes" : "reads") + " offset " + std::to_string(offset) + " that " +
             thread_name(other.thread) + " " + with + " with no barrier between");
  };
  if (concurrent(cell.write)) race("wrote", cell.write);
  const Access me{thread, epoch_, warps_[thread / kWarp].epoch};
  if (write) {
    for (const Access& read : cell.reads)
      if (concurrent(read)) race("read", read);
    cell.write = me;
    return;
  }
  Access& last = cell.reads[0];
  if (last.thread >= 0 && last.thread != thread)
    cell.reads[last.thread / kWarp == thread / kWarp ? 1 : 2] = last;
  last = me;
}

bool Block::shared_access(uint32_t offset, int bytes, bool write, Site site) {
  if (settings_.count) {
    current_->traffic.push_back({site.line() << 10 | site.column(), false, write, bytes, offset});
  }
  if (static_cast<size_t>(offset) + bytes > shared_.size()) {
    find("shared-bounds", site,
         std::to_string(bytes) + " bytes at offset " + std::to_string(offset) + " of " +
             std::to_string(shared_.size()));
    return false;
  }
  if (!aligned(offset, bytes)) {
    find("shared-alignment", site,
         std::to_string(bytes) + " bytes at offset " + std::to_string(offset));
  }
  for (uint32_t at = offset; at < offset + bytes; at += kGranule) {
    SharedCell& cell = cells_[at / kGranule];
    if (cell.in_flight >= 0) {
      find("async-race", site,
           std::string(write ? "writes" : "reads") + " offset " + std::to_string(at) +
               " while a cp.async of " + thread_name(cell.in_flight) + " is under way to it");
    }
    check_cell(cell, at, write, site);
    if (write) {
      cell.defined = true;
    } else if (!cell.defined && cell.in_flight < 0) {
      find("shared-uninitialised", site,
           "reads offset " + std::to_string(at) + " that nothing was written to");
    }
  }
  return true;
}

void Block::check_global_cell(Emulator::GlobalCell& cell, bool write, bool coherent, Site site,
                              const char* name) {
  if (cell.block >= 0 && cell.block != linear_) {
    const Published& other = published_[cell.block];
    const Published& mine = published_[linear_];
    // Theirs: fenced, and before the atomic in their block. Ours: after an atomic of our block.
    const bool released = !other.fences.empty() && cell.fences < other.fences[cell.thread] &&
                          (cell.epoch < other.epoch || cell.thread == other.thread);
    const bool acquired =
        !mine.fences.empty() && (mine.epoch < epoch_ || mine.thread == current_->index);
    if (!released || !acquired) {
      find("global-race", site,
           std::string(write ? "writes " : "reads ") + name + " that " + thread_name(cell.thread) +
               " of block " + std::to_string(cell.block) +
               " wrote, with no fence and atomic between");
    }
  }
  if (!write && !coherent && cell.block >= 0)
    find("global-not-coherent", site, std::string("reads ") + name + ", which this launch wrote");
  if (write) cell = {linear_, current_->index, epoch_, current_->fences};
}

bool Block::global_access(const void* address, int bytes, bool write, bool coherent, Site site) {
  if (bytes == 0) return true;
  const auto* begin = static_cast<const unsigned char*>(address);
  Counters& counters = report_.counters;
  (write ? counters.store_bytes : counters.load_bytes) += bytes;
  if (settings_.count) {
    current_->traffic.push_back({site.line() << 10 | site.column(), true, write, bytes,
                                 reinterpret_cast<uintptr_t>(address)});
  }
  for (Emulator::Memory& memory : memories_) {
    if (begin < memory.begin || begin + bytes > memory.begin + memory.bytes) continue;
    if (write && !memory.writable) {
      find("global-read-only", site, std::string("writes ") + memory.name);
      return false;
    }
    const bool power_of_two = (bytes & (bytes - 1)) == 0;
    if (power_of_two && !aligned(reinterpret_cast<uintptr_t>(address), bytes)) {
      find("global-alignment", site, std::to_string(bytes) + " bytes of " + memory.name);
    }
    if (memory.writable) {
      const size_t first = static_cast<size_t>(begin - memory.begin);
      for (size_t at = first / kGranule; at <= (first + bytes - 1) / kGranule; ++at)
        check_global_cell(memory.cells[at], write, coherent, site, memory.name);
    }
    return true;
  }
  std::string near;
  for (const Emulator::Memory& memory : memories_) {
    const auto past = begin + bytes - (memory.begin + memory.bytes);
    if (past > 0 && begin <= memory.begin + memory.bytes + 4096)
      near = ", " + std::to_string(past) + " past the end of " + memory.name;
  }
  find("global-bounds", site, std::to_string(bytes) + " bytes" + near);
  return false;
}

uint32_t Block::atomic_add(uint32_t* address, uint32_t value, Site site) {
  for (const Emulator::Memory& memory : memories_) {
    const auto* begin = reinterpret_cast<const unsigned char*>(address);
    if (!memory.writable || begin < memory.begin || begin + 4 > memory.begin + memory.bytes)
      continue;
    Published& mine = published_[linear_];
    mine.thread = current_->index;
    mine.epoch = epoch_;
    mine.fences.resize(num_threads_);
    for (int i = 0; i < num_threads_; ++i) mine.fences[i] = threads_[i]->fences;
    const uint32_t before = *address;
    *address += value;
    return before;
  }
  find("global-bounds", site, "an atomic");
  return 0;
}

void Block::land(const AsyncCopy& copy) {
  std::memcpy(&shared_[copy.to], copy.from, copy.valid);
  std::memset(&shared_[copy.to + copy.valid], 0, copy.bytes - copy.valid);
}

void Block::touch_async(const AsyncCopy& copy, int in_flight) {
  for (uint32_t at = copy.to; at < copy.to + copy.bytes; at += kGranule) {
    SharedCell& cell = cells_[at / kGranule];
    if (in_flight >= 0 && cell.in_flight >= 0) {
      find("async-race", copy.site,
           "cp.async to offset " + std::to_string(at) + " where one of " +
               thread_name(cell.in_flight) + " is still under way");
    }
    check_cell(cell, at, true, copy.site);
    cell.in_flight = in_flight;
    cell.defined = in_flight < 0;
  }
}

void Block::async_copy(uint32_t to, const void* from, int bytes, int valid, Site site) {
  if (valid < 0 || valid > bytes) {
    find("global-bounds", site, "cp.async of " + std::to_string(valid) + " valid bytes");
    valid = 0;
  }
  if (!global_access(from, valid, false, true, site)) valid = 0;
  if (!aligned(reinterpret_cast<uintptr_t>(from), bytes))
    find("global-alignment", site, "the source of a cp.async");
  if (static_cast<size_t>(to) + bytes > shared_.size()) {
    find("shared-bounds", site, "cp.async to offset " + std::to_string(to));
    return;
  }
  if (!aligned(to, bytes))
    find("shared-alignment", site, "cp.async to offset " + std::to_string(to));
  const AsyncCopy copy{to, static_cast<const unsigned char*>(from), bytes, valid, site};
  if (settings_.count)
    current_->traffic.push_back({site.line() << 10 | site.column(), false, true, bytes, to});
  touch_async(copy, current_->index);
  if (settings_.landing == Landing::kEarly) land(copy);
  current_->open.push_back(copy);
}

void Block::async_commit() {
  current_->groups.push_back(std::move(current_->open));
  current_->open.clear();
}

void Block::async_wait(int left) {
  auto& groups = current_->groups;
  while (static_cast<int>(groups.size()) > left) {
    for (const AsyncCopy& copy : groups.front()) {
      if (settings_.landing == Landing::kLate) land(copy);
      touch_async(copy, -1);
    }
    groups.erase(groups.begin());
  }
}

}  // namespace curvq::simt
