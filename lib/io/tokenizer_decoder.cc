#include "io/tokenizer_decoder.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "curvq/core/error.h"
#include "io/tokenizer_json.h"
#include "io/unicode.h"

namespace curvq::io {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// `text` with each `from`, from left to right, as `to`.
std::string replaced(const std::string& text, const std::string& from, const char* to) {
  std::string out;
  size_t begin = 0;
  for (size_t at; (at = text.find(from, begin)) != std::string::npos;) {
    out.append(text, begin, at - begin).append(to);
    begin = at + from.size();
  }
  return out.append(text, begin);
}

class ByteLevel : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens, TextWork&) const override {
    std::string bytes;
    for (const std::string& token : tokens) {
      const size_t before = bytes.size();
      for (size_t position = 0; position < token.size();) {
        const int byte = symbol_byte(next_code_point(token, position));
        if (byte < 0) {
          // Not from a byte-level model; an added token, say.
          bytes.resize(before);
          bytes.append(token);
          break;
        }
        bytes.push_back(static_cast<char>(byte));
      }
    }
    tokens.assign(1, repair_utf8(bytes));
  }
};

class Replace : public Decoder {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(std::vector<std::string>& tokens, TextWork& work) const override {
    size_t total = 0;
    for (std::string& token : tokens) {
      work.spans.clear();
      pattern_.find(token, work.matcher, work.spans);
      std::string out;
      for (const Span& span : work.spans) {
        if (span.match) {
          out.append(content_);
        } else {
          out.append(token, span.begin, span.end - span.begin);
        }
        work.check_size(total + out.size());
      }
      total += out.size();
      token = std::move(out);
    }
  }

 private:
  Pattern pattern_;
  std::string content_;
};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Tokens <0x00> ... <0xFF> are bytes. A run of them that is not UTF-8 becomes one U+FFFD a byte.
class ByteFallback : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens, TextWork&) const override {
    std::vector<std::string> out;
    out.reserve(tokens.size());
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (repair_utf8(bytes) == bytes) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), kReplacement);
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const std::optional<char> byte = byte_of(token)) {
        bytes.push_back(*byte);
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(out);
  }

 private:
  static std::optional<char> byte_of(const std::string& token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    const int high = hex_digit(token[3]), low = hex_digit(token[4]);
    if (token[3] == '+' && low >= 0) return static_cast<char>(low);  // as integers may be written
    if (high < 0 || low < 0) return std::nullopt;
    return static_cast<char>(high * 16 + low);
  }
};

class Fuse : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens, TextWork&) const override {
    std::string out;
    for (const std::string& token : tokens) out.append(token);
    tokens.assign(1, std::move(out));
  }
};

// Removes up to `start` characters `content` from the front of each token, `stop` from its end.
class Strip : public Decoder {
 public:
  Strip(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}

  void apply(std::vector<std::string>& tokens, TextWork&) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (int64_t i = 0; i < start_ && rest.starts_with(content_); ++i) {
        rest.remove_prefix(content_.size());
      }
      for (int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i) {
        rest.remove_suffix(content_.size());
      }
      token = std::string(rest);
    }
  }

 private:
  std::string content_;
  int64_t start_;
  int64_t stop_;
};

class Metaspace : public Decoder {
 public:
  Metaspace(std::string replacement, bool drop_first)
      : replacement_(std::move(replacement)), drop_first_(drop_first) {}

  void apply(std::vector<std::string>& tokens, TextWork&) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const char* space = i == 0 && drop_first_ ? "" : " ";
      tokens[i] = replaced(tokens[i], replacement_, space);
    }
  }

 private:
  std::string replacement_;
  bool drop_first_;
};

// Joins the tokens of a word; with `cleanup`, takes out the spaces before English punctuation.
class WordPieceJoin : public Decoder {
 public:
  WordPieceJoin(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}

  void apply(std::vector<std::string>& tokens, TextWork&) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0 && token.starts_with(prefix_)) {
        token.erase(0, prefix_.size());
      } else if (i > 0) {
        token.insert(token.begin(), ' ');
      }
      if (cleanup_) clean(token);
    }
  }

 private:
  // In this order, each wherever it stands in a token.
  static void clean(std::string& token) {
    static constexpr std::pair<const char*, const char*> kReplacements[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kReplacements) token = replaced(token, from, to);
  }

  std::string prefix_;
  bool cleanup_;
};

std::unique_ptr<Decoder> make_decoder(const Json& component, const std::string& type,
                                      const std::string& where) {
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Replace") {
    return std::make_unique<Replace>(json_pattern(component, where),
                                     json_required_string(component, "content", where));
  }
  if (type == "Strip") {
    const int64_t start = json_int(component, "start", where);
    const int64_t stop = json_int(component, "stop", where);
    if (start < 0 || stop < 0) {
      throw FormatError(where + ": \"start\" and \"stop\" must not be negative");
    }
    return std::make_unique<Strip>(json_character(component, "content", where), start, stop);
  }
  if (type == "Metaspace") {
    const bool never = json_string(component, "prepend_scheme", "always", where) == "never" ||
                       !json_bool(component, "add_prefix_space", true, where);
    return std::make_unique<Metaspace>(json_character(component, "replacement", where), !never);
  }
  if (type == "WordPiece") {
    return std::make_unique<WordPieceJoin>(json_string(component, "prefix", "##", where),
                                           json_bool(component, "cleanup", true, where));
  }
  throw_unsupported(
      where, type,
      "Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace and WordPiece");
}

}  // namespace

std::vector<std::unique_ptr<Decoder>> make_decoders(const Json& root, const std::string& where) {
  std::vector<std::unique_ptr<Decoder>> out;
  for_each_component(root, "decoders", where,
                     [&](const Json& component, const std::string& type, const std::string& at) {
                       out.push_back(make_decoder(component, type, at));
                     });
  return out;
}

}  // namespace curvq::io
