#include "io/tokenizer_normalizer.h"

#include <algorithm>

#include "io/bert_characters.h"
#include "io/tokenizer_json.h"
#include "io/unicode.h"

namespace curvq::io {
namespace {

class UnicodeForm : public Normalizer {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}

  void apply(NormalizedText& text, TextWork& work) const override {
    std::string out = unicode_normalize(text.text, form_);
    work.check_size(out.size());
    if (text.origin_bytes > 0) {
      const std::string_view start = std::string_view(text.text).substr(0, text.origin_bytes);
      text.origin_bytes = std::min(unicode_normalize(start, form_).size(), out.size());
    }
    text.text = std::move(out);
  }

 private:
  NormalForm form_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

  void apply(NormalizedText& text, TextWork& work) const override {
    if (text.text.empty()) return;
    work.check_size(text.text.size() + prefix_.size());
    text.text.insert(0, prefix_);
    if (text.origin_bytes > 0) text.origin_bytes += prefix_.size();
  }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(NormalizedText& text, TextWork& work) const override {
    work.spans.clear();
    pattern_.find(text.text, work.matcher, work.spans);
    const size_t origin = text.origin_bytes;
    std::string out;
    out.reserve(text.text.size());
    size_t out_origin = 0;
    for (const Span& span : work.spans) {
      if (!span.match) {
        if (span.begin < origin) out_origin = out.size() + std::min(span.end, origin) - span.begin;
        out.append(text.text, span.begin, span.end - span.begin);
        continue;
      }
      out.append(content_);
      work.check_size(out.size());
      // The content counts as coming from the last character that it replaces.
      if (origin > 0 && span.end <= origin) out_origin = out.size();
    }
    text.text = std::move(out);
    text.origin_bytes = out_origin;
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// Maps each character by itself.
class CharacterMap : public Normalizer {
 public:
  void apply(NormalizedText& text, TextWork& work) const override {
    std::string out;
    out.reserve(text.text.size());
    size_t out_origin = 0;
    for (size_t position = 0; position < text.text.size();) {
      const bool from_origin = position < text.origin_bytes;
      map(next_code_point(text.text, position), out);
      if (from_origin) out_origin = out.size();
    }
    work.check_size(out.size());
    text.text = std::move(out);
    text.origin_bytes = out_origin;
  }

 private:
  virtual void map(char32_t code_point, std::string& out) const = 0;
};

class Lowercase : public CharacterMap {
  void map(char32_t code_point, std::string& out) const override {
    append_lowercase(code_point, out);
  }
};

class StripAccents : public CharacterMap {
  void map(char32_t code_point, std::string& out) const override {
    if (!is_mark(code_point)) append_utf8(code_point, out);
  }
};

class StripNonspacing : public CharacterMap {
  void map(char32_t code_point, std::string& out) const override {
    if (!is_bert_mark(code_point)) append_utf8(code_point, out);
  }
};

// Drops what cannot be seen; all white space becomes a space.
class CleanText : public CharacterMap {
  void map(char32_t code_point, std::string& out) const override {
    const bool line = code_point == '\t' || code_point == '\n' || code_point == '\r';
    if (line || (is_white_space(code_point) && !is_bert_control(code_point))) {
      out.push_back(' ');
    } else if (code_point != 0 && code_point != 0xFFFD && !is_bert_control(code_point)) {
      append_utf8(code_point, out);
    }
  }
};

class SpaceIdeographs : public CharacterMap {
  void map(char32_t code_point, std::string& out) const override {
    const char* space = is_bert_ideograph(code_point) ? " " : "";
    out.append(space);
    append_utf8(code_point, out);
    out.append(space);
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  void apply(NormalizedText& text, TextWork&) const override {
    std::string& s = text.text;
    size_t end = s.size();
    while (right_ && end > 0) {
      const char32_t last = previous_code_point(s, end);
      if (!is_white_space(last)) break;
      do {
        --end;
      } while ((static_cast<unsigned char>(s[end]) & 0xC0) == 0x80);
    }
    s.resize(end);
    size_t begin = 0;
    while (left_ && begin < s.size()) {
      size_t next = begin;
      if (!is_white_space(next_code_point(s, next))) break;
      begin = next;
    }
    s.erase(0, begin);
    text.origin_bytes -= std::min(text.origin_bytes, begin);
    text.origin_bytes = std::min(text.origin_bytes, s.size());
  }

 private:
  bool left_;
  bool right_;
};

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

void add_bert_normalizers(const Json& component, const std::string& where, Normalizers& out) {
  const bool lowercase = json_bool(component, "lowercase", true, where);
  if (json_bool(component, "clean_text", true, where)) out.push_back(std::make_unique<CleanText>());
  if (json_bool(component, "handle_chinese_chars", true, where))
    out.push_back(std::make_unique<SpaceIdeographs>());
  if (json_bool(component, "strip_accents", lowercase, where)) {
    out.push_back(std::make_unique<UnicodeForm>(NormalForm::kNfd));
    out.push_back(std::make_unique<StripNonspacing>());
  }
  if (lowercase) out.push_back(std::make_unique<Lowercase>());
}

std::unique_ptr<Normalizer> make_normalizer(const Json& component, const std::string& type,
                                            const std::string& where) {
  if (type == "NFC") return std::make_unique<UnicodeForm>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeForm>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Prepend") {
    return std::make_unique<Prepend>(json_required_string(component, "prepend", where));
  }
  if (type == "Replace") {
    return std::make_unique<Replace>(json_pattern(component, where),
                                     json_required_string(component, "content", where));
  }
  if (type == "Strip") {
    return std::make_unique<Strip>(json_bool(component, "strip_left", true, where),
                                   json_bool(component, "strip_right", true, where));
  }
  throw_unsupported(where, type,
                    "Sequence, BertNormalizer, Prepend, Replace, NFC, NFD, NFKC, NFKD, Lowercase, "
                    "Strip and StripAccents");
}

}  // namespace

std::vector<std::unique_ptr<Normalizer>> make_normalizers(const Json& root,
                                                          const std::string& where) {
  Normalizers out;
  for_each_component(root, "normalizers", where,
                     [&](const Json& component, const std::string& type, const std::string& at) {
                       if (type == "BertNormalizer")
                         return add_bert_normalizers(component, at, out);
                       out.push_back(make_normalizer(component, type, at));
                     });
  return out;
}

}  // namespace curvq::io
