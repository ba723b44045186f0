#include "io/gguf_pre_tokenizers.h"

#include "curvq/core/error.h"
#include "io/text.h"

namespace curvq::io {
namespace {

constexpr char kLlama3[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen2[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

const std::vector<PreTokenizer>& pre_tokenizers() {
  static const std::vector<PreTokenizer> known = {
      {"gpt-2", nullptr, false, true, false, false},
      {"default", nullptr, false, true, false, false},
      {"smollm", nullptr, true, true, false, false},
      {"llama-bpe", kLlama3, false, false, true, false},
      {"llama3", kLlama3, false, false, true, false},
      {"qwen2", kQwen2, false, false, false, true},
  };
  return known;
}

const PreTokenizer& find_pre_tokenizer(const std::string& name, const std::string& path) {
  std::string names;
  for (const PreTokenizer& known : pre_tokenizers()) {
    if (name == known.name) return known;
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  throw UnsupportedError(path + ": metadata tokenizer.ggml.pre \"" + printable(name) +
                         "\" is not handled; handled are " + names);
}

OrderedJson byte_level(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

OrderedJson pre_tokenizer_json(const PreTokenizer& pre) {
  OrderedJson parts = OrderedJson::array();
  if (pre.digits) parts.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (pre.pattern != nullptr) {
    parts.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pre.pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  parts.push_back(byte_level(false, pre.byte_pattern));
  return {{"type", "Sequence"}, {"pretokenizers", parts}};
}

}  // namespace curvq::io
