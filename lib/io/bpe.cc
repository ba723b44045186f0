#include "io/bpe.h"

#include <algorithm>

#include "curvq/core/error.h"
#include "io/text.h"
#include "io/unicode.h"

namespace curvq::io {
namespace {

constexpr uint64_t kNoKey = ~uint64_t{0};
// Longer words are seldom seen twice.
constexpr size_t kMaxKnownWordBytes = 64;
constexpr size_t kMaxKnownWords = size_t{1} << 16;
// Of the ids of known words, all together.
constexpr size_t kMaxKnownIds = size_t{1} << 20;
constexpr size_t kMaxKeptSymbols = 4096;

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Lowest rank first, then leftmost.
struct Later {
  template <typename Merge>
  bool operator()(const Merge& a, const Merge& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  }
};

}  // namespace

size_t IntMap::slot(uint64_t key) const {
  // The finalizer of MurmurHash3.
  uint64_t hash = key;
  hash = (hash ^ (hash >> 33)) * 0xFF51AFD7ED558CCDu;
  hash = (hash ^ (hash >> 33)) * 0xC4CEB9FE1A85EC53u;
  hash ^= hash >> 33;
  const size_t mask = keys_.size() - 1;
  size_t i = hash & mask;
  while (keys_[i] != key && keys_[i] != kNoKey) i = (i + 1) & mask;
  return i;
}

void IntMap::grow() {
  std::vector<uint64_t> keys(std::max<size_t>(16, keys_.size() * 2), kNoKey);
  std::vector<uint64_t> values(keys.size());
  keys.swap(keys_);
  values.swap(values_);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == kNoKey) continue;
    const size_t to = slot(keys[i]);
    keys_[to] = keys[i];
    values_[to] = values[i];
  }
}

void IntMap::set(uint64_t key, uint64_t value) {
  if (size_ * 2 >= keys_.size()) grow();
  const size_t i = slot(key);
  if (keys_[i] == kNoKey) ++size_;
  keys_[i] = key;
  values_[i] = value;
}

const uint64_t* IntMap::find(uint64_t key) const {
  if (keys_.empty()) return nullptr;
  const size_t i = slot(key);
  return keys_[i] == key ? &values_[i] : nullptr;
}

bool BpeScratch::find_word(std::string_view word, std::vector<int32_t>& ids) const {
  const auto known = words_.find(word);
  if (known == words_.end()) return false;
  const auto begin = word_ids_.begin();
  ids.insert(ids.end(), begin + static_cast<std::ptrdiff_t>(known->second.begin),
             begin + static_cast<std::ptrdiff_t>(known->second.end));
  return true;
}

void BpeScratch::add_word(std::string_view word, const std::vector<int32_t>& ids, size_t first) {
  if (words_.size() >= kMaxKnownWords || word_ids_.size() >= kMaxKnownIds) {
    words_.clear();
    word_ids_.clear();
  }
  const size_t begin = word_ids_.size();
  word_ids_.insert(word_ids_.end(), ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
  words_.emplace(word, Slice{begin, word_ids_.size()});
}

void BpeScratch::trim() {
  if (symbols_.capacity() <= kMaxKeptSymbols) return;
  std::vector<Symbol>().swap(symbols_);
  std::vector<Merge>().swap(queue_);
}

void Bpe::encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    if (const int32_t id = vocabulary().id(word); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  if (word.size() <= kMaxKnownWordBytes) return encode_part(word, scratch, ids);
  // Parts that no merge joins may be encoded one by one, with the same result.
  for (size_t begin = 0; begin < word.size();) {
    const size_t end = part_end(word, begin);
    encode_part(word.substr(begin, end - begin), scratch, ids);
    begin = end;
  }
}

size_t Bpe::part_end(std::string_view word, size_t begin) const {
  size_t position = begin;
  char32_t previous = next_code_point(word, position);
  bool previous_known = characters_.find(previous) != nullptr;
  while (position < word.size()) {
    const size_t end = position;
    const char32_t next = next_code_point(word, position);
    const bool known = characters_.find(next) != nullptr;
    // Characters that become bytes or unk_token stay with their neighbours.
    if (previous_known && known && reached_.find(uint64_t{previous} << 32 | next) == nullptr) {
      return end;
    }
    previous = next;
    previous_known = known;
  }
  return word.size();
}

void Bpe::encode_part(std::string_view part, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  if (part.size() > kMaxKnownWordBytes) return merge_part(part, scratch, ids);
  if (scratch.find_word(part, ids)) return;
  const size_t first = ids.size();
  merge_part(part, scratch, ids);
  scratch.add_word(part, ids, first);
}

bool Bpe::append_bytes(std::string_view character, std::vector<BpeScratch::Symbol>& symbols) const {
  if (byte_ids_.empty()) return false;
  for (const char byte : character) {
    if (byte_ids_[static_cast<uint8_t>(byte)] < 0) return false;
  }
  for (const char byte : character) {
    symbols.push_back({byte_ids_[static_cast<uint8_t>(byte)], 0, 0});
  }
  return true;
}

void Bpe::make_symbols(std::string_view part, std::vector<BpeScratch::Symbol>& symbols) const {
  symbols.clear();
  // An unknown character waits: fused with those after it, and placed after bytes that follow it,
  // which is what the `tokenizers` package does.
  bool unk_waits = false;
  const auto flush_unk = [&] {
    if (unk_waits) symbols.push_back({unk_id_, 0, 0});
    unk_waits = false;
  };
  for (size_t position = 0; position < part.size();) {
    const size_t begin = position;
    const char32_t code_point = next_code_point(part, position);
    if (const uint64_t* id = characters_.find(code_point)) {
      flush_unk();
      symbols.push_back({static_cast<int32_t>(*id), 0, 0});
    } else if (!append_bytes(part.substr(begin, position - begin), symbols) && has_unk_) {
      if (unk_id_ < 0) {
        throw FormatError(where_ + ": unk_token \"" + printable(unk_token_) +
                          "\" is not in the vocabulary, but the text needs it for \"" +
                          printable(part.substr(begin, position - begin)) + "\"");
      }
      if (!fuse_unk_) flush_unk();
      unk_waits = true;
    }
  }
  flush_unk();
}

void Bpe::merge_part(std::string_view part, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols_;
  std::vector<BpeScratch::Merge>& queue = scratch.queue_;
  make_symbols(part, symbols);
  queue.clear();
  const auto count = static_cast<int32_t>(symbols.size());
  const auto candidate = [&](int32_t left, int32_t right) {
    const uint64_t* merge = merges_.find(
        pair_key(symbols[static_cast<size_t>(left)].id, symbols[static_cast<size_t>(right)].id));
    if (merge == nullptr) return false;
    queue.push_back({static_cast<uint32_t>(*merge >> 32), left, static_cast<int32_t>(*merge)});
    return true;
  };
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
    if (i + 1 < count) candidate(i, i + 1);
  }
  std::make_heap(queue.begin(), queue.end(), Later());
  const auto push = [&](int32_t left, int32_t right) {
    if (candidate(left, right)) std::push_heap(queue.begin(), queue.end(), Later());
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), Later());
    const BpeScratch::Merge merge = queue.back();
    queue.pop_back();
    BpeScratch::Symbol& left = symbols[static_cast<size_t>(merge.position)];
    if (left.id < 0 || left.next < 0) continue;
    BpeScratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    // The pair may have changed since it was put in the queue.
    const uint64_t* now = merges_.find(pair_key(left.id, right.id));
    if (now == nullptr || static_cast<int32_t>(*now) != merge.id) continue;
    left.id = merge.id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = merge.position;
    if (left.previous >= 0) push(left.previous, merge.position);
    if (left.next >= 0) push(merge.position, left.next);
  }
  for (const BpeScratch::Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
}

}  // namespace curvq::io
