#include "io/tokenizer_syntax.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "curvq/core/error.h"
#include "io/text.h"

namespace curvq::io {
namespace {

constexpr size_t kNowhere = std::string::npos;

// Below U+0100 Oniguruma counts the superscript digits and fractions as word characters, too.
const std::string& word_members() {
  static const std::string members =
      R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})" + std::string(kWordMembers);
  return members;
}

bool is_ascii_alnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  std::string run() {
    while (!done()) {
      switch (const char c = pattern_[position_]) {
        case '\\':
          begin_atom();
          escape(false);
          break;
        case '[':
          begin_atom();
          char_class();
          break;
        case '(':
          open_group();
          break;
        case ')':
          if (groups_.empty()) unsupported(")");
          atom_ = groups_.back();
          groups_.pop_back();
          branch_start_ = false;
          take();
          break;
        case '|':
          atom_ = kNowhere;
          branch_start_ = true;
          take();
          break;
        case '*':
        case '+':
        case '?':
          take();
          if (!done() && (peek(0) == '?' || peek(0) == '+')) take();
          break;
        case '{':
          interval();
          break;
        default:
          begin_atom();
          take();
          while (!done() && (static_cast<unsigned char>(c) & 0x80) != 0 &&
                 (static_cast<unsigned char>(peek(0)) & 0xC0) == 0x80) {
            take();
          }
      }
    }
    return out_;
  }

 private:
  bool done() const { return position_ >= pattern_.size(); }
  char peek(size_t ahead) const {
    return position_ + ahead < pattern_.size() ? pattern_[position_ + ahead] : '\0';
  }
  bool starts(std::string_view text) const {
    return pattern_.substr(position_, text.size()) == text;
  }
  void take() { out_.push_back(pattern_[position_++]); }
  void begin_atom() {
    atom_ = out_.size();
    branch_start_ = false;
  }

  [[noreturn]] void unsupported(std::string_view construct) const {
    throw UnsupportedError(where_ + ": pattern " + printable(pattern_) + " uses " +
                           printable(construct) + ", which is not handled");
  }

  void put_class(bool negated, std::string_view members) {
    out_.append(negated ? "[^" : "[").append(members).append("]");
  }

  // The named set of an escape, outside (a whole class) or inside (members of one) brackets.
  void set(char name, bool in_class) {
    const bool negated = name < 'a';
    std::string_view members;
    switch (name | 0x20) {
      case 'w':
        members = word_members();
        break;
      case 's':
        members = in_class && negated ? R"(\P{White_Space})" : kSpaceMembers;
        break;
      case 'd':
        members = in_class && negated ? R"(\P{Nd})" : R"(\p{Nd})";
        break;
      default:
        members = "0-9A-Fa-f";
    }
    if (!in_class) {
      put_class(negated, members);
    } else if (negated && (name == 'W' || name == 'H')) {
      unsupported(std::string("\\") + name + " in a class");
    } else {
      out_.append(members);
    }
  }

  void word_boundary(bool negated) {
    const std::string word = "[" + word_members() + "]";
    const std::string before = "(?<=" + word + ")", not_before = "(?<!" + word + ")";
    const std::string after = "(?=" + word + ")", not_after = "(?!" + word + ")";
    out_ += "(?:" + before + (negated ? after : not_after) + "|" + not_before +
            (negated ? not_after : after) + ")";
  }

  void hex_digits(std::string_view construct, size_t begin, size_t count) {
    const std::string_view digits = pattern_.substr(std::min(begin, pattern_.size()), count);
    const bool all_hex = std::all_of(digits.begin(), digits.end(),
                                     [](unsigned char c) { return std::isxdigit(c) != 0; });
    if (digits.size() != count || count == 0 || !all_hex) unsupported(construct);
    out_.append("\\x{").append(digits).append("}");
  }

  void hex_escape() {
    if (peek(0) == '{') {
      const size_t close = pattern_.find('}', position_);
      if (close == kNowhere || close - position_ > 9) unsupported("\\x{");
      hex_digits("\\x{", position_ + 1, close - position_ - 1);
      position_ = close + 1;
      return;
    }
    // From \x80 on it stands for one byte of a character.
    if (peek(0) < '0' || peek(0) > '7') unsupported("\\x");
    hex_digits("\\x", position_, 2);
    position_ += 2;
  }

  // \p{L}, \p{Lu}, \p{^L}, or a script.
  void property(bool negated) {
    const size_t close = pattern_.find('}', position_);
    if (peek(0) != '{' || close == kNowhere) unsupported("\\p without braces");
    std::string name(pattern_.substr(position_ + 1, close - position_ - 1));
    position_ = close + 1;
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.erase(0, 1);
    }
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return is_ascii_alnum(c) || c == '_';
    });
    // POSIX names mean other sets in PCRE2.
    std::string lower = name;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    static const std::vector<std::string> posix = {
        "alnum", "alpha", "blank", "cntrl",  "digit", "graph", "lower", "print",
        "punct", "space", "upper", "xdigit", "word",  "ascii", "any",   "assigned"};
    if (!plain || std::find(posix.begin(), posix.end(), lower) != posix.end()) {
      unsupported("\\p{" + name + "}");
    }
    out_ += std::string(negated ? "\\P{" : "\\p{") + (name.size() > 2 ? "sc:" : "") + name + "}";
  }

  void escape(bool in_class) {
    const char c = peek(1);
    if (position_ + 1 >= pattern_.size()) unsupported("a final backslash");
    position_ += 2;
    switch (c) {
      case 'w':
      case 'W':
      case 's':
      case 'S':
      case 'd':
      case 'D':
      case 'h':
      case 'H':
        return set(c, in_class);
      case 'p':
      case 'P':
        return property(c == 'P');
      case 'x':
        return hex_escape();
      case 'u':
        hex_digits("\\u", position_, 4);
        position_ += 4;
        return;
      case 'v':
        out_.append("\\x{0b}");
        return;
      case 't':
      case 'n':
      case 'r':
      case 'f':
      case 'a':
      case 'e':
        out_.append({'\\', c});
        return;
      default:
        break;
    }
    if (!in_class && (c == 'b' || c == 'B')) return word_boundary(c == 'B');
    if (!in_class && (c == 'A' || c == 'z' || c == 'Z')) {
      out_.append({'\\', c});
    } else if (is_ascii_alnum(c)) {
      unsupported(std::string("\\") + c);
    } else if ((static_cast<unsigned char>(c) & 0x80) != 0) {
      --position_;  // an escaped character that is not ASCII stands for itself
      do {
        take();
      } while (!done() && (static_cast<unsigned char>(peek(0)) & 0xC0) == 0x80);
    } else {
      out_.append({'\\', c});
    }
  }

  void char_class() {
    take();
    if (peek(0) == '^') take();
    if (peek(0) == ']') {
      out_.append("\\]");
      ++position_;
    }
    while (!done() && peek(0) != ']') {
      if (starts("&&") || peek(0) == '[') {
        unsupported(starts("[:") ? "[:...:]" : starts("&&") ? "&& in a class" : "a nested class");
      }
      if (peek(0) == '\\') {
        escape(true);
      } else {
        take();
      }
    }
    if (done()) unsupported("a class without ]");
    take();
  }

  void open_group() {
    // In Oniguruma it holds to the end of the group, over alternatives; so it does here, if it is
    // the first in its own.
    if (starts("(?i)") && branch_start_) {
      out_.append("(?i)");
      position_ += 4;
      return;
    }
    groups_.push_back(out_.size());
    atom_ = kNowhere;
    branch_start_ = true;
    for (const std::string_view kind :
         {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:"}) {
      if (starts(kind)) {
        out_.append(kind);
        position_ += kind.size();
        return;
      }
    }
    if (starts("(?<") && is_ascii_alnum(peek(3)) && !is_digit(peek(3))) {
      const size_t close = pattern_.find('>', position_);
      if (close == kNowhere) unsupported("(?<");
      out_.append("(?:");
      position_ = close + 1;
    } else if (peek(1) == '?' || peek(1) == '*') {
      unsupported(pattern_.substr(position_, 4));
    } else {
      out_.append("(?:");
      ++position_;
    }
  }

  void interval() {
    const size_t close = pattern_.find('}', position_);
    const std::string_view body =
        close == kNowhere ? "" : pattern_.substr(position_ + 1, close - position_ - 1);
    const size_t comma = body.find(',');
    const bool numeric =
        std::all_of(body.begin(), body.end(), [](char c) { return is_digit(c) || c == ','; });
    const bool valid = numeric && body.find_first_of("0123456789") != kNowhere &&
                       (comma == kNowhere || body.find(',', comma + 1) == kNowhere);
    if (!valid) {
      begin_atom();
      out_.append("\\{");
      ++position_;
      return;
    }
    if (atom_ == kNowhere) unsupported("an interval without an operand");
    position_ = close + 1;
    const std::string count = (comma == 0 ? "{0" : "{") + std::string(body) + "}";
    if (comma == kNowhere && peek(0) == '?') unsupported("{n}?");
    if (peek(0) == '+') {
      out_.insert(atom_, "(?:");
      out_.append(count).append(")");
      take();
    } else {
      out_.append(count);
      if (peek(0) == '?') take();
    }
  }

  std::string_view pattern_;
  const std::string& where_;
  size_t position_ = 0;
  std::string out_;
  // Where the operand of a quantifier that comes next begins in out_.
  size_t atom_ = kNowhere;
  bool branch_start_ = true;
  std::vector<size_t> groups_;
};

}  // namespace

std::string translate_oniguruma(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace curvq::io
