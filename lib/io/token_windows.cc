#include "curvq/io/token_windows.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/safetensors.h"
#include "curvq/io/tokenizer.h"
#include "io/hash.h"
#include "io/text.h"
#include "io/text_records.h"

namespace curvq {
namespace {

constexpr const char* kIdsExtension = ".safetensors";
constexpr const char* kDefaultName = "input_ids";

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

void require_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) throw UsageError(path + ": does not exist");
}

// Splits FILE.safetensors:NAME; false if `source` is no file of ids.
bool split_ids_source(const std::string& source, std::string* file, std::string* name) {
  *file = source;
  *name = kDefaultName;
  if (ends_with(source, kIdsExtension)) return true;
  const std::string separator = std::string(kIdsExtension) + ":";
  const size_t at = source.find(separator);
  if (at == std::string::npos) return false;
  *file = source.substr(0, at + separator.size() - 1);
  *name = source.substr(at + separator.size());
  if (name->empty()) throw UsageError(source + ": names no tensor behind the colon");
  return true;
}

void check_id(int64_t id, int64_t vocab_size, int64_t row, int64_t column,
              const std::string& where) {
  const int64_t limit = vocab_size > 0 ? vocab_size : std::numeric_limits<int32_t>::max();
  if (id >= 0 && id < limit) return;
  throw FormatError(format(
      "%s: row %lld column %lld holds id %lld; ids must be from 0 to %lld%s", where.c_str(),
      static_cast<long long>(row), static_cast<long long>(column), static_cast<long long>(id),
      static_cast<long long>(limit - 1), vocab_size > 0 ? " (vocab_size - 1)" : ""));
}

void require_windows(const TokenWindows& windows, int64_t num_samples) {
  if (windows.num_windows >= num_samples) return;
  throw UsageError(
      format("%s: has %lld windows of %lld tokens, %lld samples are wanted; ask for fewer "
             "or give more data",
             windows.origin.c_str(), static_cast<long long>(windows.num_windows),
             static_cast<long long>(windows.length), static_cast<long long>(num_samples)));
}

int64_t read_id(const TensorView& tensor, int64_t index) {
  if (tensor.dtype == DType::kI64) {
    int64_t id = 0;
    std::memcpy(&id, tensor.data + index * static_cast<int64_t>(sizeof(id)), sizeof(id));
    return id;
  }
  int32_t id = 0;
  std::memcpy(&id, tensor.data + index * static_cast<int64_t>(sizeof(id)), sizeof(id));
  return id;
}

const TensorView& find_ids(const SafetensorsFile& file, const std::string& name) {
  if (const TensorView* tensor = file.find(name)) return *tensor;
  std::string known;
  for (const TensorView& tensor : file.tensors()) {
    known += (known.empty() ? "" : ", ") + io::printable(tensor.name);
  }
  throw FormatError(file.path() + ": has no tensor " + io::printable(name) +
                    (known.empty() ? "; it has none at all"
                                   : "; name one of these as FILE:NAME: " + io::printable(known)));
}

TokenWindows load_ids(const std::string& path, const std::string& name,
                      const TokenWindowsOptions& options) {
  const SafetensorsFile file(path);
  const TensorView& tensor = find_ids(file, name);
  const std::string where = path + ":" + io::printable(name);
  const size_t rank = tensor.shape.size();
  if ((tensor.dtype != DType::kI32 && tensor.dtype != DType::kI64) || rank < 1 || rank > 2) {
    throw FormatError(where + " is " + std::string(dtype_name(tensor.dtype)) + " " +
                      io::printable(shape_string(tensor.shape)) +
                      "; token ids are I32 or I64 of shape [windows, length] or [length]");
  }
  const int64_t row_length = tensor.shape.back();
  const int64_t rows = rank == 2 ? tensor.shape[0] : 1;
  if (rows == 0 || row_length == 0) {
    throw FormatError(where + " holds no windows, its shape is " + shape_string(tensor.shape));
  }
  TokenWindows windows;
  windows.origin = where;
  windows.length = options.max_length > 0 ? std::min(options.max_length, row_length) : row_length;
  windows.num_windows = options.num_samples > 0 ? std::min(options.num_samples, rows) : rows;
  require_windows(windows, options.num_samples);
  windows.ids.reserve(static_cast<size_t>(windows.num_windows * windows.length));
  for (int64_t row = 0; row < windows.num_windows; ++row) {
    for (int64_t column = 0; column < windows.length; ++column) {
      const int64_t id = read_id(tensor, row * row_length + column);
      check_id(id, options.vocab_size, row, column, where);
      windows.ids.push_back(static_cast<int32_t>(id));
    }
  }
  return windows;
}

void append_text(const std::string& text, const std::string& origin, const Tokenizer& tokenizer,
                 std::vector<int32_t>* ids) {
  io::require_utf8(text, origin);
  const std::vector<int32_t> tokens = tokenizer.encode(text, false);
  ids->insert(ids->end(), tokens.begin(), tokens.end());
}

// `wanted` ids are enough; 0: all.
std::vector<int32_t> tokenize_jsonl(const std::string& content, const std::string& path,
                                    const Tokenizer& tokenizer, int64_t wanted) {
  std::vector<int32_t> ids;
  io::for_each_record(content, path, [&](const std::string& text, const std::string& origin) {
    append_text(text, origin, tokenizer, &ids);
    return wanted == 0 || static_cast<int64_t>(ids.size()) < wanted;
  });
  return ids;
}

TokenWindows load_text(const std::string& path, const Tokenizer* tokenizer,
                       const TokenWindowsOptions& options) {
  if (tokenizer == nullptr) {
    throw UsageError(path +
                     ": text needs a tokenizer, and there is none; give token ids "
                     "(.safetensors) instead");
  }
  if (options.max_length == 0) throw UsageError(path + ": text needs a window length (max_length)");
  const std::string content = read_file(path);
  const auto added =
      options.special_tokens ? static_cast<int64_t>(tokenizer->with_special_tokens({}).size()) : 0;
  const int64_t length = options.max_length - added;  // of the text in a window
  if (length < 1) {
    throw UsageError(format("%s: windows of %lld tokens leave no room beside %lld special tokens",
                            path.c_str(), static_cast<long long>(options.max_length),
                            static_cast<long long>(added)));
  }
  int64_t wanted = 0;
  if (__builtin_mul_overflow(options.num_samples, length, &wanted)) {
    throw UsageError(format("%lld samples of %lld tokens are too many",
                            static_cast<long long>(options.num_samples),
                            static_cast<long long>(options.max_length)));
  }
  std::vector<int32_t> text;
  if (ends_with(path, ".jsonl")) {
    text = tokenize_jsonl(content, path, *tokenizer, wanted);
  } else {
    append_text(content, path, *tokenizer, &text);
  }
  const auto num_ids = static_cast<int64_t>(text.size());
  TokenWindows windows;
  windows.origin = path;
  windows.length = options.max_length;
  windows.num_windows = num_ids / length;
  if (windows.num_windows == 0) {
    throw FormatError(
        format("%s: has %lld tokens, a window needs %lld; give more text or a smaller "
               "--max-length",
               path.c_str(), static_cast<long long>(num_ids), static_cast<long long>(length)));
  }
  require_windows(windows, options.num_samples);
  if (options.num_samples > 0) windows.num_windows = options.num_samples;
  for (int64_t i = 0; i < windows.num_windows; ++i) {
    std::vector<int32_t> window(text.begin() + i * length, text.begin() + (i + 1) * length);
    if (options.special_tokens) window = tokenizer->with_special_tokens(std::move(window));
    windows.ids.insert(windows.ids.end(), window.begin(), window.end());
  }
  for (size_t i = 0; i < windows.ids.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    check_id(windows.ids[i], options.vocab_size, at / windows.length, at % windows.length, path);
  }
  return windows;
}

}  // namespace

TokenWindows window_range(const TokenWindows& windows, int64_t first, int64_t count) {
  TokenWindows out = windows;
  out.num_windows = count;
  out.ids.assign(windows.window(first), windows.window(first) + count * windows.length);
  return out;
}

TokenWindows load_token_windows(const std::string& source, const Tokenizer* tokenizer,
                                const TokenWindowsOptions& options) {
  if (options.num_samples < 0 || options.max_length < 0 || options.vocab_size < 0) {
    throw UsageError(format(
        "num_samples %lld, max_length %lld, vocab_size %lld: none may be negative",
        static_cast<long long>(options.num_samples), static_cast<long long>(options.max_length),
        static_cast<long long>(options.vocab_size)));
  }
  TokenWindows windows;
  std::string file, name;
  if (split_ids_source(source, &file, &name)) {
    require_file(file);
    windows = load_ids(file, name, options);
  } else if (ends_with(source, ".txt") || ends_with(source, ".jsonl")) {
    require_file(source);
    windows = load_text(source, tokenizer, options);
  } else {
    throw UsageError(source + ": data must be FILE.txt, FILE.jsonl or FILE.safetensors[:NAME]");
  }
  io::Hasher hasher;
  hasher.add(windows.ids.data(), windows.ids.size() * sizeof(int32_t));
  windows.hash = hasher.hex();
  return windows;
}

}  // namespace curvq
