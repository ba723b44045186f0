// Byte pair encoding: words to token ids by a ranked list of merges.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/token_model.h"

namespace curvq::io {

// Maps 64-bit keys (not ~0) to 64-bit values; open addressing.
class IntMap {
 public:
  // Replaces the value of a key that is there.
  void set(uint64_t key, uint64_t value);
  // nullptr if there is none; valid until the next set().
  const uint64_t* find(uint64_t key) const;

 private:
  size_t slot(uint64_t key) const;
  void grow();

  std::vector<uint64_t> keys_, values_;
  size_t size_ = 0;
};

// What encoding needs besides the model, for one thread at a time: buffers, and the ids of words
// seen lately.
class BpeScratch {
 public:
  // False if the word is not there.
  bool find_word(std::string_view word, std::vector<int32_t>& ids) const;
  // `ids` from `first` on belong to the word. Forgets everything first when it is full.
  void add_word(std::string_view word, const std::vector<int32_t>& ids, size_t first);
  // Gives back the memory that a long word took.
  void trim();

 private:
  friend class Bpe;
  struct Symbol {
    int32_t id;  // -1: merged into the one before it
    int32_t previous;
    int32_t next;  // -1: none
  };
  struct Merge {
    uint32_t rank;
    int32_t position;
    int32_t id;
  };
  struct Slice {
    size_t begin;
    size_t end;
  };

  std::vector<Symbol> symbols_;
  std::vector<Merge> queue_;
  std::unordered_map<std::string, Slice, StringHash, std::equal_to<>> words_;
  std::vector<int32_t> word_ids_;
};

class Bpe : public TokenModel {
 public:
  Bpe(const Json& model, const std::string& where);

  // A word is merged as a whole. O(n log n) for n characters.
  void encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const override;

 private:
  void read_options(const Json& model, const std::string& where);
  void find_characters();
  void read_merges(const Json& merges, const std::string& where);
  void add_merge(const std::string& left, const std::string& right, uint32_t rank,
                 const std::string& at);

  void encode_part(std::string_view part, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  void merge_part(std::string_view part, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  void make_symbols(std::string_view part, std::vector<BpeScratch::Symbol>& symbols) const;
  bool append_bytes(std::string_view character, std::vector<BpeScratch::Symbol>& symbols) const;
  // Where the part of `word` that begins at `begin` ends: no merge reaches over its end.
  size_t part_end(std::string_view word, size_t begin) const;

  std::string where_;
  IntMap characters_;              // code point -> id, for tokens of one character
  IntMap merges_;                  // ids left << 32 | right -> rank << 32 | id
  IntMap reached_;                 // code points last of left << 32 | first of right, of each merge
  std::vector<int32_t> byte_ids_;  // of <0x00> ... <0xFF>, -1 if absent; empty: no byte fallback
  std::string unk_token_;
  bool has_unk_ = false;
  int32_t unk_id_ = -1;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
};

}  // namespace curvq::io
