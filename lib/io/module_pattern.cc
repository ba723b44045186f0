#define PCRE2_CODE_UNIT_WIDTH 8
#include "io/module_pattern.h"

#include <pcre2.h>

#include <memory>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "io/text.h"

namespace curvq::io {
namespace {

constexpr const char* kPrefix = "re:";
constexpr uint32_t kMatchLimit = 1'000'000;  // backtracking steps; names are short
constexpr size_t kMaxPatternBytes = 10'000;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;

bool is_pattern(const std::string& entry) { return entry.rfind(kPrefix, 0) == 0; }

Code compile(const std::string& entry) {
  const std::string expression = entry.substr(std::string(kPrefix).size());
  const std::string what = "regular expression \"" + printable(expression) + "\"";
  if (expression.size() > kMaxPatternBytes) {
    throw FormatError(format("%s has %zu bytes, the limit is %zu", what.c_str(), expression.size(),
                             kMaxPatternBytes));
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                          PCRE2_ANCHORED | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                          nullptr));
  if (code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    throw FormatError(format("%s is not valid at character %zu: %s", what.c_str(), offset + 1,
                             printable(reinterpret_cast<const char*>(message)).c_str()));
  }
  return code;
}

}  // namespace

ModuleMatch match_module(const std::string& entry, std::string_view name) {
  if (!is_pattern(entry)) {
    if (entry == name) return ModuleMatch::kName;
    return entry == "Linear" ? ModuleMatch::kClass : ModuleMatch::kNone;
  }
  const Code code = compile(entry);
  const std::unique_ptr<pcre2_match_data, FreeMatch> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr));
  const std::unique_ptr<pcre2_match_context, FreeContext> context(
      pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), kMatchLimit);
  const int result = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(),
                                 0, 0, data.get(), context.get());
  if (result >= 0) return ModuleMatch::kPattern;
  if (result == PCRE2_ERROR_NOMATCH) return ModuleMatch::kNone;
  throw FormatError("regular expression \"" + printable(entry) + "\" cannot be matched against " +
                    printable(name) +
                    (result == PCRE2_ERROR_MATCHLIMIT ? ": it takes too long" : ""));
}

void check_module_pattern(const std::string& entry, const std::string& origin) {
  if (!is_pattern(entry)) return;
  try {
    compile(entry);
  } catch (const FormatError& e) {
    throw FormatError(origin + ": " + e.what());
  }
}

}  // namespace curvq::io
