#include "curvq/io/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "curvq/core/error.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/json.h"
#include "io/bpe.h"
#include "io/text.h"
#include "io/tokenizer_added_tokens.h"
#include "io/tokenizer_load.h"
#include "io/tokenizer_text.h"
#include "io/unicode.h"

namespace curvq {
namespace {

struct Workspace {
  io::TextWork work;
  io::BpeScratch bpe;
};

// Hands each call a workspace of its own; keeps as many as calls ever ran at once, with the words
// that they have seen.
class WorkspacePool {
 public:
  std::unique_ptr<Workspace> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      free_.reserve(++made_);
      return std::make_unique<Workspace>();
    }
    std::unique_ptr<Workspace> out = std::move(free_.back());
    free_.pop_back();
    return out;
  }
  void give(std::unique_ptr<Workspace> workspace) {
    workspace->work.trim();
    workspace->bpe.trim();
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
  size_t made_ = 0;
};

class Lease {
 public:
  explicit Lease(WorkspacePool& pool) : pool_(pool), workspace_(pool.take()) {}
  ~Lease() { pool_.give(std::move(workspace_)); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Workspace& operator*() { return *workspace_; }

 private:
  WorkspacePool& pool_;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(io::TokenizerParts loaded) : parts(std::move(loaded)) {
    for (const io::AddedToken& token : parts.added.tokens()) {
      added_ids.emplace(token.content, token.id);
      added_by_id.emplace(token.id, &token);
      max_id = std::max(max_id, token.id);
    }
    max_id = std::max(max_id, parts.model->vocabulary().max_id());
  }

  void append_text(std::string_view text, io::PieceList& list, Workspace& space) const;
  io::PieceList pieces_of(std::string_view text, Workspace& space) const;
  // nullptr if no token has the id.
  const std::string* token_text(int32_t id, bool& special) const;

  io::TokenizerParts parts;
  std::unordered_map<std::string, int32_t, io::StringHash, std::equal_to<>> added_ids;
  std::unordered_map<int32_t, const io::AddedToken*> added_by_id;
  int32_t max_id = -1;
  mutable WorkspacePool pool;
};

// Normalizes text between added tokens and finds those that are looked for after that.
void Tokenizer::Impl::append_text(std::string_view text, io::PieceList& list,
                                  Workspace& space) const {
  io::NormalizedText normalized;
  normalized.text = text;
  if (list.text.empty() && list.pieces.empty()) {
    size_t first = 0;
    io::next_code_point(text, first);
    normalized.origin_bytes = first;
  }
  for (const auto& normalizer : parts.normalizers) normalizer->apply(normalized, space.work);
  const size_t base = list.text.size();
  space.work.check_size(base + normalized.text.size());
  list.text.append(normalized.text);
  std::vector<io::AddedTokens::Found> found;
  parts.added.find(normalized.text, true, space.work.matcher, found);
  for (const auto& part : found) {
    const size_t origin = std::clamp(normalized.origin_bytes, part.begin, part.end) - part.begin;
    list.pieces.push_back({static_cast<uint32_t>(base + part.begin),
                           static_cast<uint32_t>(base + part.end), static_cast<uint32_t>(origin),
                           part.token});
  }
}

io::PieceList Tokenizer::Impl::pieces_of(std::string_view text, Workspace& space) const {
  io::PieceList list;
  std::vector<io::AddedTokens::Found> found;
  parts.added.find(text, false, space.work.matcher, found);
  for (const auto& part : found) {
    if (part.token == io::kNoToken) {
      append_text(text.substr(part.begin, part.end - part.begin), list, space);
    } else {
      list.pieces.push_back({0, 0, 0, part.token});
    }
  }
  for (const auto& stage : parts.pre_tokenizers) stage->apply(list, space.work);
  return list;
}

const std::string* Tokenizer::Impl::token_text(int32_t id, bool& special) const {
  const auto added = added_by_id.find(id);
  special = false;
  if (added == added_by_id.end()) return parts.model->vocabulary().token(id);
  // A normalized form that is another string is not the special token's name.
  const auto named = added_ids.find(added->second->pattern);
  special = named != added_ids.end() && added_by_id.at(named->second)->special;
  return &added->second->pattern;
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::from_file(const std::string& path) { return from_json(read_file(path), path); }

Tokenizer Tokenizer::from_json(const std::string& content, const std::string& origin) {
  return Tokenizer(std::make_unique<Impl>(io::load_tokenizer(parse_json(content, origin), origin)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  if (const std::optional<size_t> bad = io::find_invalid_utf8(text)) {
    throw FormatError("text is not UTF-8 at byte " + std::to_string(*bad) + " of " +
                      std::to_string(text.size()));
  }
  Lease lease(impl_->pool);
  Workspace& space = *lease;
  space.work.start(text.size());
  const io::PieceList list = impl_->pieces_of(text, space);
  std::vector<int32_t> ids;
  ids.reserve(list.pieces.size() + list.pieces.size() / 4);
  for (const io::Piece& piece : list.pieces) {
    if (piece.token != io::kNoToken) {
      ids.push_back(piece.token);
    } else {
      impl_->parts.model->encode(list.view(piece), space.bpe, ids);
    }
  }
  return add_special_tokens ? with_special_tokens(std::move(ids)) : ids;
}

std::vector<int32_t> Tokenizer::with_special_tokens(std::vector<int32_t> ids) const {
  const io::TokenizerParts& parts = impl_->parts;
  ids.insert(ids.begin(), parts.prefix_ids.begin(), parts.prefix_ids.end());
  ids.insert(ids.end(), parts.suffix_ids.begin(), parts.suffix_ids.end());
  return ids;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  size_t bytes = 0;
  for (const int32_t id : ids) {
    if (id < 0 || id > impl_->max_id) {
      throw UsageError("token id " + std::to_string(id) + " is outside the vocabulary of " +
                       std::to_string(vocab_size()) + " ids");
    }
    bool special = false;
    const std::string* token = impl_->token_text(id, special);
    if (token == nullptr || (special && skip_special_tokens)) continue;
    tokens.push_back(*token);
    bytes += token->size();
  }
  std::string out;
  if (impl_->parts.decoders.empty() && !impl_->parts.has_decoder) {
    for (size_t i = 0; i < tokens.size(); ++i) out.append(i == 0 ? "" : " ").append(tokens[i]);
    return out;
  }
  Lease lease(impl_->pool);
  Workspace& space = *lease;
  space.work.start(bytes);
  for (const auto& decoder : impl_->parts.decoders) decoder->apply(tokens, space.work);
  for (const std::string& token : tokens) out.append(token);
  return out;
}

int64_t Tokenizer::vocab_size() const { return int64_t{impl_->max_id} + 1; }

int32_t Tokenizer::token_id(std::string_view token) const {
  const auto added = impl_->added_ids.find(token);
  return added != impl_->added_ids.end() ? added->second
                                         : impl_->parts.model->vocabulary().id(token);
}

}  // namespace curvq
