// Text to token ids and back, as the `tokenizers` package does it from the same tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace curvq {

// Immutable after loading; safe to use from several threads. Where it differs from `tokenizers`:
// 1. `truncation` and `padding` in the file are not applied.
// 2. Characters have the properties of Unicode 14 in patterns, 8 where they are BERT's, and 15
//    elsewhere; the parts of that package each have a version of their own.
// 3. An added token whose id is not the one that package would give it is a FormatError (there: a
//    warning, and the other id). Two that are equal once normalized are one, too.
// 4. Work is bounded: ids up to 2^24, added tokens of 1024 bytes, 64 components of a kind, text
// that
//    replacements make 32 times longer, backtracking of patterns.
class Tokenizer {
 public:
  // Reads tokenizer.json (BPE models: byte-level, or SentencePiece style with byte fallback;
  // WordPiece models, as BERT has).
  // Throws ResourceError if it cannot be read, FormatError if it is damaged (naming the field),
  // UnsupportedError for a component that is not handled (naming it and those that are).
  static Tokenizer from_file(const std::string& path);
  // The same from the file's content; `origin` names it in messages.
  static Tokenizer from_json(const std::string& content, const std::string& origin);

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // `text` must be UTF-8 (else FormatError with the offset of the first bad byte). With
  // add_special_tokens, the post-processor's template (a BOS, say) is applied.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;

  // What the post-processor's template makes of the ids of a text.
  std::vector<int32_t> with_special_tokens(std::vector<int32_t> ids) const;

  // Special tokens are dropped if skip_special_tokens. Ids out of range throw UsageError. Bytes
  // that do not form UTF-8 become U+FFFD, as in `tokenizers`.
  std::string decode(const std::vector<int32_t>& ids, bool skip_special_tokens) const;

  // Largest id + 1, added tokens included.
  int64_t vocab_size() const;
  // -1 if there is none.
  int32_t token_id(std::string_view token) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace curvq
