#include "io/tokenizer_pre_tokenizer.h"

#include "curvq/core/error.h"
#include "io/bert_characters.h"
#include "io/text.h"
#include "io/tokenizer_json.h"
#include "io/tokenizer_split.h"
#include "io/tokenizer_syntax.h"
#include "io/unicode.h"

namespace curvq::io {
namespace {

// Calls rewrite(piece's text, out), which appends what takes its place, for each piece that is no
// token. `rewrite` returns how many of the appended bytes come from the first of `origin` bytes.
template <typename Rewrite>
void rewrite_pieces(PieceList& list, TextWork& work, const Rewrite& rewrite) {
  std::string out;
  out.reserve(list.text.size() + list.text.size() / 8);
  for (Piece& piece : list.pieces) {
    if (piece.token != kNoToken) continue;
    const size_t begin = out.size();
    const size_t origin = rewrite(list.view(piece), piece.origin_bytes, out);
    work.check_size(out.size());
    piece = {static_cast<uint32_t>(begin), static_cast<uint32_t>(out.size()),
             static_cast<uint32_t>(origin), kNoToken};
  }
  list.text = std::move(out);
}

// Matches single characters.
template <typename Predicate>
void find_characters(std::string_view text, const Predicate& wanted, std::vector<Span>& spans) {
  size_t covered = 0;
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    if (!wanted(next_code_point(text, position))) continue;
    if (covered < begin) spans.push_back({covered, begin, false});
    spans.push_back({begin, position, true});
    covered = position;
  }
  if (covered < text.size()) spans.push_back({covered, text.size(), false});
}

class CharacterSplit : public PreTokenizer {
 public:
  using Predicate = bool (*)(char32_t);
  CharacterSplit(Predicate wanted, SplitBehavior behavior) : wanted_(wanted), behavior_(behavior) {}

  void apply(PieceList& list, TextWork& work) const override {
    split_pieces(list, behavior_, false, work,
                 [&](std::string_view text, std::vector<Span>& spans) {
                   find_characters(text, wanted_, spans);
                 });
  }

 private:
  Predicate wanted_;
  SplitBehavior behavior_;
};

class PatternSplit : public PreTokenizer {
 public:
  PatternSplit(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void apply(PieceList& list, TextWork& work) const override {
    split_pieces(list, behavior_, invert_, work,
                 [&](std::string_view text, std::vector<Span>& spans) {
                   pattern_.find(text, work.matcher, spans);
                 });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class PrefixSpace : public PreTokenizer {
 public:
  void apply(PieceList& list, TextWork& work) const override {
    rewrite_pieces(list, work, [](std::string_view text, size_t origin, std::string& out) {
      const bool prefix = !text.starts_with(' ');
      if (prefix) out.push_back(' ');
      out.append(text);
      return prefix && origin > 0 ? origin + 1 : origin;
    });
  }
};

class ByteSymbolMap : public PreTokenizer {
 public:
  void apply(PieceList& list, TextWork& work) const override {
    rewrite_pieces(list, work, [](std::string_view text, size_t origin, std::string& out) {
      const size_t begin = out.size();
      size_t out_origin = 0;
      for (size_t i = 0; i < text.size(); ++i) {
        out.append(byte_symbol(static_cast<uint8_t>(text[i])));
        if (i < origin) out_origin = out.size() - begin;
      }
      return out_origin;
    });
  }
};

// Writes spaces as another character, and puts one before the text.
class MetaspaceMap : public PreTokenizer {
 public:
  enum class Prepend { kAlways, kFirst, kNever };
  MetaspaceMap(std::string replacement, Prepend prepend)
      : replacement_(std::move(replacement)), prepend_(prepend) {}

  void apply(PieceList& list, TextWork& work) const override {
    rewrite_pieces(list, work, [&](std::string_view text, size_t origin, std::string& out) {
      const size_t begin = out.size();
      size_t out_origin = 0;
      const bool has_it = text.starts_with(' ') || text.starts_with(replacement_);
      const bool wanted =
          prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && origin > 0);
      if (wanted && !has_it) out.append(replacement_);
      for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == ' ') {
          out.append(replacement_);
        } else {
          out.push_back(text[i]);
        }
        if (i < origin) out_origin = out.size() - begin;
      }
      return out_origin;
    });
  }

 private:
  std::string replacement_;
  Prepend prepend_;
};

using Stages = std::vector<std::unique_ptr<PreTokenizer>>;

void add_byte_level(const Json& component, const std::string& where, Stages& stages) {
  if (json_bool(component, "add_prefix_space", true, where)) {
    stages.push_back(std::make_unique<PrefixSpace>());
  }
  if (json_bool(component, "use_regex", true, where)) {
    // The pattern of GPT-2.
    stages.push_back(std::make_unique<PatternSplit>(
        Pattern::regex(
            R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", where),
        SplitBehavior::kIsolated, false));
  }
  stages.push_back(std::make_unique<ByteSymbolMap>());
}

void add_metaspace(const Json& component, const std::string& where, Stages& stages) {
  const std::string replacement = json_character(component, "replacement", where);
  std::string scheme = json_string(component, "prepend_scheme", "always", where);
  if (!json_bool(component, "add_prefix_space", true, where)) {
    if (scheme != "never") {
      throw FormatError(where + ": \"add_prefix_space\" is false, but \"prepend_scheme\" is " +
                        printable(scheme));
    }
  }
  MetaspaceMap::Prepend prepend = MetaspaceMap::Prepend::kAlways;
  if (scheme == "first") {
    prepend = MetaspaceMap::Prepend::kFirst;
  } else if (scheme == "never") {
    prepend = MetaspaceMap::Prepend::kNever;
  } else if (scheme != "always") {
    throw FormatError(where + ": \"prepend_scheme\" must be always, first or never, found " +
                      printable(scheme));
  }
  stages.push_back(std::make_unique<MetaspaceMap>(replacement, prepend));
  if (json_bool(component, "split", true, where)) {
    stages.push_back(std::make_unique<PatternSplit>(Pattern::literal(replacement),
                                                    SplitBehavior::kMergedWithNext, false));
  }
}

void add_whitespace(const std::string& where, Stages& stages) {
  // Word characters as in UTS 18, Annex C: with the join controls.
  const std::string word = std::string(kWordMembers) + R"(\x{200c}\x{200d})";
  stages.push_back(std::make_unique<PatternSplit>(
      Pattern::pcre2("[" + word + "]+|[^" + word + std::string(kSpaceMembers) + "]+", where),
      SplitBehavior::kRemoved, true));
}

void add_stages(const Json& component, const std::string& type, const std::string& where,
                Stages& stages) {
  const auto behavior = [&](const char* fallback) {
    return split_behavior(json_string(component, "behavior", fallback, where), where);
  };
  const auto add_characters = [&](CharacterSplit::Predicate wanted, SplitBehavior how) {
    stages.push_back(std::make_unique<CharacterSplit>(wanted, how));
  };
  if (type == "ByteLevel") {
    add_byte_level(component, where, stages);
  } else if (type == "Split") {
    stages.push_back(std::make_unique<PatternSplit>(json_pattern(component, where), behavior(""),
                                                    json_bool(component, "invert", false, where)));
  } else if (type == "Digits") {
    const bool individual = json_bool(component, "individual_digits", false, where);
    add_characters(is_number, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  } else if (type == "Metaspace") {
    add_metaspace(component, where, stages);
  } else if (type == "Whitespace") {
    add_whitespace(where, stages);
  } else if (type == "WhitespaceSplit") {
    add_characters(is_white_space, SplitBehavior::kRemoved);
  } else if (type == "Punctuation") {
    add_characters(is_punctuation, behavior("Isolated"));
  } else if (type == "BertPreTokenizer") {
    add_characters(is_white_space, SplitBehavior::kRemoved);
    add_characters(is_bert_punctuation, SplitBehavior::kIsolated);
  } else {
    throw_unsupported(where, type,
                      "Sequence, ByteLevel, Split, Digits, Metaspace, Whitespace, "
                      "WhitespaceSplit, Punctuation and BertPreTokenizer");
  }
}

}  // namespace

std::vector<std::unique_ptr<PreTokenizer>> make_pre_tokenizers(const Json& root,
                                                               const std::string& where) {
  Stages stages;
  for_each_component(root, "pretokenizers", where,
                     [&](const Json& component, const std::string& type, const std::string& at) {
                       add_stages(component, type, at, stages);
                     });
  return stages;
}

}  // namespace curvq::io
