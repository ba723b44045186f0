// What the accesses of a warp cost: wavefronts of shared memory, sectors of global memory.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "kernels/cuda/simt/block.h"

namespace curvq::simt {
namespace {

constexpr int kWavefrontBytes = 128, kBanks = 32, kSectorBytes = 32;

// Wavefronts of some lanes that access together: the most distinct words that fall into one bank.
int wavefronts(const std::vector<const Traffic*>& lanes) {
  std::set<uintptr_t> words;
  for (const Traffic* access : lanes)
    for (int byte = 0; byte < access->bytes; byte += 4) words.insert((access->address + byte) / 4);
  int used[kBanks] = {}, most = 0;
  for (const uintptr_t word : words) most = std::max(most, ++used[word % kBanks]);
  return most;
}

void count_shared(const std::vector<const Traffic*>& lanes, Counters& counters) {
  // Accesses of 8 and 16 bytes go by half and quarter warps.
  const size_t together = kWavefrontBytes / std::max(4, lanes[0]->bytes);
  for (size_t first = 0; first < lanes.size(); first += together) {
    const size_t last = std::min(lanes.size(), first + together);
    counters.shared_wavefronts += wavefronts({lanes.begin() + first, lanes.begin() + last});
    counters.shared_ideal += 1;
  }
}

void count_global(const std::vector<const Traffic*>& lanes, Counters& counters) {
  std::set<uintptr_t> sectors;
  std::set<uintptr_t> bytes;  // distinct ones: lanes may read the same
  for (const Traffic* access : lanes) {
    for (int byte = 0; byte < access->bytes; byte += 2) bytes.insert((access->address + byte) / 2);
    for (uintptr_t sector = access->address / kSectorBytes;
         sector <= (access->address + access->bytes - 1) / kSectorBytes; ++sector)
      sectors.insert(sector);
  }
  const int64_t ideal = (static_cast<int64_t>(bytes.size()) * 2 + kSectorBytes - 1) / kSectorBytes;
  (lanes[0]->store ? counters.store_sectors : counters.load_sectors) +=
      static_cast<int64_t>(sectors.size());
  (lanes[0]->store ? counters.store_ideal : counters.load_ideal) += ideal;
}

}  // namespace

// Lanes are brought together by line and by how often each was there since the warp last met.
void Block::count_traffic(int warp) {
  if (!settings_.count) return;
  using Key = std::tuple<uint32_t, bool, bool, int, int>;
  std::map<Key, std::vector<const Traffic*>> instructions;
  for (int lane = 0; lane < kWarp; ++lane) {
    std::map<std::tuple<uint32_t, bool, bool>, int> seen;
    for (const Traffic& access : threads_[warp * kWarp + lane]->traffic) {
      const int nth = seen[{access.line, access.global, access.store}]++;
      instructions[{access.line, access.global, access.store, 0, nth}].push_back(&access);
    }
  }
  for (const auto& [key, lanes] : instructions) {
    if (lanes[0]->global) {
      count_global(lanes, report_.counters);
    } else {
      count_shared(lanes, report_.counters);
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) threads_[warp * kWarp + lane]->traffic.clear();
}

void Block::count_matrix_rows(void** addresses) {
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::vector<Traffic> rows(8);
    std::vector<const Traffic*> lanes;
    for (int row = 0; row < 8; ++row) {
      rows[row] = {0, false, false, 16, *static_cast<uint32_t*>(addresses[matrix * 8 + row])};
      lanes.push_back(&rows[row]);
    }
    count_shared(lanes, report_.counters);
  }
}

}  // namespace curvq::simt
