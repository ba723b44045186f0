// Patterns of tokenizer.json: literal text or regular expressions.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;

namespace curvq::io {

// A part of a text, and whether a pattern matches it.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool match = false;
};

// What matching needs besides the pattern, for one thread at a time. It also bounds the time that
// all patterns together may take for one text.
class Matcher {
 public:
  Matcher();
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  // Call before the first of the searches in a text of so many bytes.
  void start(size_t text_bytes);

 private:
  friend class Pattern;
  struct State;
  std::unique_ptr<State> state_;
  std::chrono::steady_clock::time_point deadline_;
};

// Immutable, may be shared by threads.
class Pattern {
 public:
  static Pattern literal(std::string text);
  // `where` names the pattern in messages. Throws UnsupportedError for syntax that is not handled.
  static Pattern regex(const std::string& pattern, const std::string& where);
  // A pattern that is in the syntax of PCRE2 already.
  static Pattern pcre2(const std::string& pattern, const std::string& where);

  // Appends spans that cover `text` (nothing for the empty text): the matches, from left to right,
  // and what is between them. A match may be empty, but not at the end of the one before it.
  // Throws FormatError if the pattern backtracks too much.
  void find(std::string_view text, Matcher& matcher, std::vector<Span>& spans) const;

 private:
  Pattern() = default;
  // The first match that begins at or after `from`; false if there is none.
  bool search(std::string_view text, size_t from, Matcher& matcher, Span& found) const;
  [[noreturn]] void fail(int code) const;

  std::string text_;  // of a literal
  std::string where_;
  std::shared_ptr<pcre2_real_code_8> code_;  // null for a literal
};

}  // namespace curvq::io
