#include "io/tokenizer_pattern.h"

#include <algorithm>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "curvq/core/error.h"
#include "io/text.h"
#include "io/tokenizer_syntax.h"

namespace curvq::io {
namespace {

using Clock = std::chrono::steady_clock;

// PCRE2 counts backtracking for each start of a match anew, so one call may take as many starts as
// this; then the clock is read.
constexpr size_t kStartsPerCall = 64;
// About 0.1 s for one start. Needed: a few for each character of the longest run of white space.
constexpr uint32_t kMatchLimit = 10'000'000;
// In KiB; for patterns that the compiled matcher's stack does not suffice for.
constexpr uint32_t kHeapLimit = 64 * 1024;
constexpr size_t kStackStart = 32 * 1024;
constexpr size_t kStackLimit = 4 * 1024 * 1024;
constexpr size_t kMaxPatternBytes = 64 * 1024;
// Usual patterns take about 50 ns a byte.
constexpr auto kTimeAllowed = std::chrono::seconds(5);
constexpr auto kTimeAllowedPerByte = std::chrono::microseconds(10);

struct ContextFree {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof(buffer)) < 0) return "unknown error";
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Matcher::State {
  std::unique_ptr<pcre2_match_data, ContextFree> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, ContextFree> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, ContextFree> stack{
      pcre2_jit_stack_create(kStackStart, kStackLimit, nullptr)};
};

Matcher::Matcher() : state_(std::make_unique<State>()) {
  if (!state_->data || !state_->context || !state_->stack) {
    throw ResourceError("no memory for matching regular expressions");
  }
  pcre2_set_match_limit(state_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(state_->context.get(), kHeapLimit);
  pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
  start(0);
}

Matcher::~Matcher() = default;

void Matcher::start(size_t text_bytes) {
  deadline_ = Clock::now() + kTimeAllowed +
              kTimeAllowedPerByte * static_cast<std::chrono::microseconds::rep>(text_bytes);
}

Pattern Pattern::literal(std::string text) {
  Pattern pattern;
  pattern.text_ = std::move(text);
  return pattern;
}

Pattern Pattern::regex(const std::string& pattern, const std::string& where) {
  if (pattern.size() > kMaxPatternBytes) {
    throw UnsupportedError(where + ": a pattern of " + std::to_string(pattern.size()) +
                           " bytes, the limit is " + std::to_string(kMaxPatternBytes));
  }
  return pcre2(translate_oniguruma(pattern, where), where + ": pattern " + printable(pattern));
}

Pattern Pattern::pcre2(const std::string& pattern, const std::string& where) {
  const std::unique_ptr<pcre2_compile_context, ContextFree> context(
      pcre2_compile_context_create(nullptr));
  if (!context) throw ResourceError("no memory for compiling regular expressions");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
      &error, &offset, context.get());
  if (code == nullptr) {
    throw UnsupportedError(where + " cannot be compiled: " + error_text(error));
  }
  Pattern out;
  out.where_ = where;
  out.code_.reset(code, [](pcre2_code* owned) { pcre2_code_free(owned); });
  // Where it fails (no executable memory), patterns are interpreted.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return out;
}

void Pattern::fail(int code) const {
  throw FormatError(where_ + " takes too long or too much memory on this text (" +
                    error_text(code) + "); the pattern backtracks too much");
}

bool Pattern::search(std::string_view text, size_t from, Matcher& matcher, Span& found) const {
  if (!code_) {
    const size_t begin = text.find(text_, from);
    found = {begin, begin + text_.size(), true};
    return begin != std::string_view::npos;
  }
  Matcher::State& state = *matcher.state_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  while (true) {
    // A start that is inside a character is not tried.
    const size_t last_start = std::min(from + kStartsPerCall, text.size());
    pcre2_set_offset_limit(state.context.get(), last_start);
    int code = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                           state.data.get(), state.context.get());
    if (code == PCRE2_ERROR_JIT_STACKLIMIT) {
      code = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         state.data.get(), state.context.get());
    }
    if (code >= 0) {
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data.get());
      found = {bounds[0], bounds[1], true};
      return true;
    }
    if (code != PCRE2_ERROR_NOMATCH) fail(code);
    if (last_start == text.size()) return false;
    from = last_start;
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
    if (Clock::now() > matcher.deadline_) fail(PCRE2_ERROR_MATCHLIMIT);
  }
}

void Pattern::find(std::string_view text, Matcher& matcher, std::vector<Span>& spans) const {
  if (text.empty()) return;
  constexpr size_t kSearchesPerClock = 1024;
  size_t covered = 0, from = 0, searches = 0;
  Span found;
  bool any = false;
  while (from <= text.size() && search(text, from, matcher, found)) {
    if (++searches % kSearchesPerClock == 0 && Clock::now() > matcher.deadline_) {
      fail(PCRE2_ERROR_MATCHLIMIT);
    }
    if (found.end == found.begin && any && found.end == covered) {
      // The next search begins one character later.
      do {
        ++from;
      } while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80);
      continue;
    }
    if (covered < found.begin) spans.push_back({covered, found.begin, false});
    spans.push_back(found);
    covered = from = found.end;
    any = true;
  }
  if (covered < text.size()) spans.push_back({covered, text.size(), false});
}

}  // namespace curvq::io
