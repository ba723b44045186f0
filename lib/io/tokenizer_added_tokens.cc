#include "io/tokenizer_added_tokens.h"

#include <algorithm>

#include "io/tokenizer_syntax.h"
#include "io/unicode.h"

namespace curvq::io {

void StringSet::add(std::string text, size_t value) {
  first_.set(static_cast<uint8_t>(text[0]));
  strings_.push_back({std::move(text), value});
}

void StringSet::finish() {
  std::sort(strings_.begin(), strings_.end(),
            [](const Entry& a, const Entry& b) { return a.text < b.text; });
}

std::optional<StringSet::Match> StringSet::find(std::string_view text, size_t& begin) const {
  for (; begin < text.size(); ++begin) {
    if (!first_.test(static_cast<uint8_t>(text[begin]))) continue;
    if (const std::optional<Match> match = longest(text, begin)) return match;
  }
  return std::nullopt;
}

std::optional<StringSet::Match> StringSet::longest(std::string_view text, size_t begin) const {
  // Those that begin like the text are a range, which each further byte narrows.
  auto low = strings_.begin(), high = strings_.end();
  std::optional<Match> found;
  for (size_t depth = 0; low != high; ++depth) {
    if (low->text.size() == depth) {
      found = Match{low->value, begin + depth};
      if (++low == high) break;
    }
    if (begin + depth == text.size()) break;
    const auto byte = static_cast<uint8_t>(text[begin + depth]);
    const auto at = [&](const Entry& entry) { return static_cast<uint8_t>(entry.text[depth]); };
    low = std::partition_point(low, high, [&](const Entry& e) { return at(e) < byte; });
    high = std::partition_point(low, high, [&](const Entry& e) { return at(e) == byte; });
  }
  return found;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    (tokens_[i].normalized ? normalized_ : raw_).add(tokens_[i].pattern, i);
    if (tokens_[i].single_word && !word_) {
      word_ = Pattern::pcre2("[" + std::string(kWordMembers) + R"(\x{200c}\x{200d}])",
                             "word characters");
    }
  }
  raw_.finish();
  normalized_.finish();
}

bool AddedTokens::touches_word(std::string_view text, size_t begin, size_t end,
                               Matcher& matcher) const {
  const auto is_word = [&](char32_t code_point) {
    std::string character;
    append_utf8(code_point, character);
    std::vector<Span> spans;
    word_->find(character, matcher, spans);
    return spans[0].match;
  };
  if (begin > 0 && is_word(previous_code_point(text, begin))) return true;
  return end < text.size() && is_word(next_code_point(text, end));
}

void AddedTokens::find(std::string_view text, bool normalized, Matcher& matcher,
                       std::vector<Found>& found) const {
  const StringSet& strings = normalized ? normalized_ : raw_;
  size_t covered = 0, position = 0, spaces_end = 0;
  while (!strings.empty()) {
    const std::optional<StringSet::Match> match = strings.find(text, position);
    if (!match) break;
    const AddedToken& token = tokens_[match->value];
    size_t begin = position, end = match->end;
    position = match->end;
    if (token.single_word && touches_word(text, begin, end, matcher)) continue;
    if (token.lstrip) {
      begin = std::max(begin, covered);
      while (begin > covered && is_white_space(previous_code_point(text, begin))) {
        do {
          --begin;
        } while ((static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80);
      }
    }
    if (token.rstrip) {
      // Matches inside the white space after an earlier match need not look at it again.
      end = std::max(end, spaces_end);
      while (end < text.size()) {
        size_t next = end;
        if (!is_white_space(next_code_point(text, next))) break;
        end = next;
      }
      spaces_end = end;
    }
    if (begin >= end) continue;  // it lies inside the white space that an earlier token took
    if (covered < begin) found.push_back({covered, begin, -1});
    found.push_back({begin, end, token.id});
    covered = end;
  }
  if (covered < text.size()) found.push_back({covered, text.size(), -1});
}

}  // namespace curvq::io
