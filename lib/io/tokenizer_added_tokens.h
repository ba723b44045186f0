// Added tokens of tokenizer.json: found in the text before the model sees it.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer_pattern.h"

namespace curvq::io {

struct AddedToken {
  std::string content;
  std::string pattern;  // what is looked for: the content, normalized if `normalized`
  int32_t id = 0;
  bool single_word = false;  // only where no word characters touch it
  bool lstrip = false;       // takes the white space on its left with it
  bool rstrip = false;
  bool normalized = false;  // looked for in the normalized text
  bool special = false;
};

// Finds the leftmost of the longest of some strings. At most max(length) steps a byte of text.
class StringSet {
 public:
  void add(std::string text, size_t value);
  void finish();
  bool empty() const { return strings_.empty(); }
  // The value and the end of the match that begins at or after `begin`, which moves there.
  struct Match {
    size_t value;
    size_t end;
  };
  std::optional<Match> find(std::string_view text, size_t& begin) const;
  // The longest that begins at `begin`.
  std::optional<Match> longest(std::string_view text, size_t begin) const;

 private:
  struct Entry {
    std::string text;
    size_t value;
  };
  std::vector<Entry> strings_;  // sorted
  std::bitset<256> first_;
};

// Immutable after construction, may be shared by threads.
class AddedTokens {
 public:
  struct Found {
    size_t begin = 0;
    size_t end = 0;
    int32_t token = -1;  // -1: text
  };

  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // Appends the tokens of one kind in `text` and the text between them.
  void find(std::string_view text, bool normalized, Matcher& matcher,
            std::vector<Found>& found) const;
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  bool touches_word(std::string_view text, size_t begin, size_t end, Matcher& matcher) const;

  std::vector<AddedToken> tokens_;
  StringSet raw_;
  StringSet normalized_;
  std::optional<Pattern> word_;  // only if there is a single_word token
};

}  // namespace curvq::io
