// Token ids against the size of the vocabulary.
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/tokenizer.h"
#include "eval/verify_context.h"

namespace curvq::verify {
namespace {

using Severity = VerifyProblem::Severity;

void check_ids(Context* context, const Json& json, const std::string& file) {
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    const auto value = json.find(key);
    if (value == json.end() || value->is_null()) continue;
    const Json ids = value->is_array() ? *value : Json::array({*value});
    for (const Json& id : ids) {
      if (!id.is_number_integer()) {
        context->error(file, "", std::string(key) + ": " + id.dump() + " is not a token id");
        continue;
      }
      const int64_t number = id.get<int64_t>();
      const bool no_padding = number == -1 && std::string(key) == "pad_token_id";
      if ((number < 0 || number >= context->vocab_size) && !no_padding) {
        context->error(
            file, "",
            format("%s %lld is not below vocab_size %lld", key, static_cast<long long>(number),
                   static_cast<long long>(context->vocab_size)));
      }
    }
  }
}

void check_tokenizer(Context* context) {
  constexpr const char* kTokenizer = "tokenizer.json";
  const std::string path = context->directory / kTokenizer;
  if (!std::filesystem::exists(path)) {
    if (!std::filesystem::exists(context->directory / "tokenizer.model")) {
      context->warning(kTokenizer, "", "missing: text cannot be tokenized");
    }
    return;
  }
  try {
    const int64_t size = Tokenizer::from_file(path).vocab_size();
    if (size > context->vocab_size) {
      context->error(
          kTokenizer, "",
          format("has ids up to %lld, vocab_size of config.json is %lld",
                 static_cast<long long>(size - 1), static_cast<long long>(context->vocab_size)));
    }
  } catch (const UnsupportedError& error) {
    context->add_exception(Severity::kWarning, kTokenizer,
                           std::string(error.what()) + "; its vocabulary is not checked");
  } catch (const Error& error) {
    context->add_exception(Severity::kError, kTokenizer, error.what());
  }
}

}  // namespace

void check_tokens(Context* context) {
  if (context->config.is_null() || context->vocab_size < 0) return;
  check_tokenizer(context);
  check_ids(context, context->config, "config.json");
  constexpr const char* kGeneration = "generation_config.json";
  const std::string path = context->directory / kGeneration;
  if (!std::filesystem::exists(path)) return;
  try {
    const Json json = read_json_file(path);
    if (!json.is_object()) throw FormatError("not a JSON object");
    check_ids(context, json, kGeneration);
  } catch (const Error& error) {
    context->add_exception(Severity::kError, kGeneration, error.what());
  }
}

}  // namespace curvq::verify
